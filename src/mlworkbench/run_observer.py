"""Who watches a run that is followed: the command line, a handle of the library."""

from __future__ import annotations

from .model import Run


class Observer:
    """Receives what happens to a run while its log is followed. Override the methods you need."""

    def contact_changed(self, run: Run) -> None:
        """Contact with the target was lost, or is back."""

    def build_output(self, data: bytes) -> None:
        """The preparation of the run has written this."""

    def state_changed(self, run: Run) -> None:
        """The history has recorded a new state of the run."""
