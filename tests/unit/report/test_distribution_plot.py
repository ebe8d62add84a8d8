"""Plots of tables, which are files of a script: any cell can have any value."""

import pytest

from mlworkbench.report.distribution_plot import BINS, Curves, HeatMap, plot_of
from mlworkbench.report.table_report import LoggedTable

HISTOGRAM = ["step", "min", "max"]
CURVE = ["step", "threshold", "recall", "precision"]


def test_histograms_with_different_ranges_share_an_axis():
    table = LoggedTable("w", "w.json", HISTOGRAM, [[1, 0, 1], [2, 0, 2], [3, 1, 1]], [[4] * 64, [4] * 64, [9]])
    plot = plot_of(table)
    assert isinstance(plot, HeatMap)
    assert (plot.steps, plot.low, plot.high) == ([1, 2, 3], 0, 2)
    half = BINS // 2
    assert plot.rows[0][: half - 1] == [100] * (half - 1) and plot.rows[0][half + 1 :] == [0] * (half - 1)
    assert min(plot.rows[1]) >= 99
    assert [index for index, value in enumerate(plot.rows[2]) if value] == [half]


def test_precision_recall_curves_by_step():
    rows = [[2, 0, 1, 0.5], [1, 0, 1, 0.25], [2, 1, 0.5, 1], ["x", None, 1, 1], [3, 0, 1]]
    plot = plot_of(LoggedTable("pr", "pr.json", CURVE, rows))
    assert plot == Curves([1, 2], [[(1, 0.25)], [(1, 0.5), (0.5, 1)]])


def test_other_tables_have_no_plot():
    assert plot_of(LoggedTable("t", "t.json", ["class"], [["a"]])) is None
    assert plot_of(LoggedTable("t", "t.json", HISTOGRAM, [[1, 0, 1]])) is None


@pytest.mark.parametrize("bucket", [[], [None], ["1"], [-1], [True], [1e308], {}, 7, [float("nan")], [0, 0]])
@pytest.mark.parametrize("row", [[], [1], [1, 2, 1], [1, "a", 2], [1, 0, 5e-324], [0, -9e299, 9e299], [1, 10**400, 2]])
def test_unusable_cells(bucket, row):
    plot = plot_of(LoggedTable("w", "w.json", HISTOGRAM, [row, [1, 0, 1]], [bucket, [1]]))
    assert isinstance(plot, HeatMap)
    assert all(0 <= value <= 100 for densities in plot.rows for value in densities)
