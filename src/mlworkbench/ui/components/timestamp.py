"""A moment, in the zone of whoever looks."""

from __future__ import annotations

from nicegui.element import Element


class When(Element, component="when.js"):
    """``3 min ago`` with the whole as a tooltip, or the moment itself."""

    def __init__(self, moment: float, *, relative: bool = True) -> None:
        super().__init__()
        self._props["moment"] = moment
        self._props["relative"] = relative
