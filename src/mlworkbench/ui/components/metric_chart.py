"""A chart that asks for its series itself: for its width, for the part zoomed into, again while they grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui.element import Element
from nicegui.elements import echart as _echart  # noqa: F401 - makes its ES module known under the name "nicegui-echart"


class Chart(Element, component="chart.js"):
    """``series``: for each curve ``{"label": …, "url": …}``; the address answers as ``/api/runs/ID/series?name=NAME``.

    ``x``: step, time or relative (to each run's start). ``smooth``: 0 to 1, how much the past counts. Charts of one
    ``group`` zoom together. ``small``: only the curve. ``reach``: seconds that an axis of time spans from the run's
    start, so that all charts have the same. Only charts in sight ask for anything.
    """

    def __init__(
        self,
        title: str,
        series: Sequence[dict[str, str]],
        x: str = "step",
        log: bool = False,
        smooth: float = 0.0,
        height: int = 260,
        **more: Any,
    ) -> None:
        super().__init__()
        self._props["title"] = title
        self._props["series"] = list(series)
        self._props["x"] = x
        self._props["log"] = log
        self._props["smooth"] = smooth
        self._props["height"] = height
        self._props["group"] = more.pop("group", "")
        self._props["small"] = more.pop("small", False)
        self._props["unit"] = more.pop("unit", "")
        self._props["reach"] = more.pop("reach", 0.0)
        assert not more, more

    def look(self, **wishes: Any) -> None:
        """Change x, log, smooth, group or series."""
        for name in wishes.keys() & {"x", "log", "smooth", "group", "series"}:
            self._props[name] = wishes[name]
        self.update()
