"""Interface for observing a run while it is followed, used by the command line and by run handles."""

from __future__ import annotations

from .model import Run


class Observer:
    """Base class for observers of a run whose log is followed. Override the methods you need."""

    def contact_changed(self, run: Run) -> None:
        """Handle lost or restored contact with the target."""

    def build_output(self, data: bytes) -> None:
        """Handle new output from the preparation of the run."""

    def state_changed(self, run: Run) -> None:
        """Handle a new state of the run in the history."""
