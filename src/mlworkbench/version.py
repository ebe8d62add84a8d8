"""Version, in a separate module because the in-run library replaces the package inside a run."""

__version__ = "0.1.0"
