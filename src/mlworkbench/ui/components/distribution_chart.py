"""Chart of a histogram over steps, or of precision-recall curves."""

from __future__ import annotations

from dataclasses import asdict

from nicegui.element import Element
from nicegui.elements import echart as _echart  # noqa: F401 - registers its ES module as "nicegui-echart"

from ...report.distribution_plot import Curves, HeatMap


class DistributionChart(Element, component="distribution.js"):
    """Heat map of a histogram, or the curve of one step with a slider for the step."""

    def __init__(self, title: str, plot: HeatMap | Curves) -> None:
        super().__init__()
        self._props.update({"title": title, "plot": asdict(plot)})
