"""The newest runs of a list as bars: how they ended, how long they took, what they measured."""

from __future__ import annotations

from nicegui.element import Element
from nicegui.elements import echart as _echart  # noqa: F401 - lets the page import ECharts under the name nicegui-echart

MOST = 150  # runs


class RunChart(Element, component="runchart.js"):
    """Asks ``url`` (GET /api/runs/rows with its filter) itself. ``measure``: duration, or metrics.NAME."""

    def __init__(self, url: str, measure: str) -> None:
        super().__init__()
        self._props.update({"url": url, "measure": measure, "most": MOST})

    def show(self, url: str, measure: str) -> None:
        self._props.update({"url": url, "measure": measure})
        self.update()

    def refresh(self) -> None:
        self.run_method("ask")
