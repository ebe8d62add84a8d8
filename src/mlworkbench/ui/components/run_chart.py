"""Bar chart of the newest runs: status, duration, or a metric."""

from __future__ import annotations

from nicegui.element import Element
from nicegui.elements import echart as _echart  # noqa: F401 - registers its ES module as "nicegui-echart"

MAX_RUNS = 150  # maximum number of runs


class RunChart(Element, component="runchart.js"):
    """Chart that loads ``url`` (``GET /api/runs/rows`` with the filter).

    ``measure`` is ``duration`` or ``metrics.NAME``.
    """

    def __init__(self, url: str, measure: str) -> None:
        super().__init__()
        self._props.update({"url": url, "measure": measure, "most": MAX_RUNS})

    def show(self, url: str, measure: str) -> None:
        self._props.update({"url": url, "measure": measure})
        self.update()

    def refresh(self) -> None:
        self.run_method("ask")
