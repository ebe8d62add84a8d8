"""The version, in a module of its own: inside a run the in-run library stands in for the package's door."""

__version__ = "0.1.0"
