"""ML Workbench: run your scripts on any machine you can reach, and keep a history worth searching."""

__version__ = "0.1.0"
