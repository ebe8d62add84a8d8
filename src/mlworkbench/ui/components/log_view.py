"""Log of a run. Only visible lines are in the page, so ten million lines scroll smoothly."""

from __future__ import annotations

from nicegui.element import Element


class LogView(Element, component="logview.js"):
    """Log that requests visible lines from ``/api/runs/RUN/log``, and new lines of an active run.

    ``which`` is ``run`` or ``build``. ``start`` is the first line to show, counted from 1. -1 is the
    last line. 0 is the beginning of the log or, if the run is active, its end.
    """

    def __init__(self, run: str, which: str = "run", start: int = 0) -> None:
        super().__init__()
        self._props["run"] = run
        self._props["which"] = which
        self._props["start"] = start
