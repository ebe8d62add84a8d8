"""The log of a run: ten million lines scroll without a stall, because only those in sight are in the page."""

from __future__ import annotations

from nicegui.element import Element


class LogView(Element, component="logview.js"):
    """Asks ``/api/runs/RUN/log`` for the lines that it shows; while the run goes on, also for new ones.

    ``which``: run or build. ``start``: the line to show first, from 1; -1 the last one; 0 the beginning, or the end
    of a run that goes on.
    """

    def __init__(self, run: str, which: str = "run", start: int = 0) -> None:
        super().__init__()
        self._props["run"] = run
        self._props["which"] = which
        self._props["start"] = start
