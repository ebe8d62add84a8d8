"""Chart that loads its series to fit its width and zoom range, and reloads them as they grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui.element import Element
from nicegui.elements import echart as _echart  # noqa: F401 - registers its ES module as "nicegui-echart"


class MetricChart(Element, component="chart.js"):
    """Chart of one or more series. Only visible charts load data.

    ``series`` contains ``{"label": …, "url": …}`` for each curve. The URL must respond like
    ``/api/runs/ID/series?name=NAME``. ``x`` is ``step``, ``time``, or ``relative`` (to the start of
    each run). ``smooth`` is the weight of past values, from 0 to 1. Charts with the same ``group``
    zoom together. ``small`` shows only the curve. ``reach`` is the length of a time axis in seconds
    from the start of the run, so that all charts have the same axis.
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

    def set_options(self, **options: Any) -> None:
        """Change ``x``, ``log``, ``smooth``, ``group``, or ``series``."""
        for name in options.keys() & {"x", "log", "smooth", "group", "series"}:
            self._props[name] = options[name]
        self.update()
