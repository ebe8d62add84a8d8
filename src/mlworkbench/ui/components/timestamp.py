"""Timestamp in the browser's time zone."""

from __future__ import annotations

from nicegui.element import Element


class Timestamp(Element, component="when.js"):
    """Relative time (``3 min ago``) with the full time as a tooltip, or the full time."""

    def __init__(self, moment: float, *, relative: bool = True) -> None:
        super().__init__()
        self._props["moment"] = moment
        self._props["relative"] = relative
