"""The log of a run: ten million lines scroll without a stall, because only those in sight are in the page."""

from __future__ import annotations

from nicegui.element import Element


class LogView(Element, component="logview.js"):
    """Asks ``url`` for the lines that it shows; while ``live``, also for new ones."""

    def __init__(self, url: str, live: bool, start: int = 0) -> None:
        super().__init__()
        self._props["url"] = url
        self._props["live"] = live
        self._props["start"] = start

    def point_out(self, numbers: list[int], here: int) -> None:
        """Lines that a search has found, and the one to go to."""
        self.run_method("mark", numbers, here)

    def follow(self, yes: bool) -> None:
        """Stay at the end while lines come."""
        self.run_method("follow", yes)

    def ended(self) -> None:
        """Nothing more comes."""
        self._props["live"] = False
        self.update()
