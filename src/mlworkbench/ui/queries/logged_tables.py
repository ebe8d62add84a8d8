"""Tables that a script logged with ``log_table``, shortened for display."""

from __future__ import annotations

from dataclasses import dataclass

from ...history.store import History
from ...report.distribution_plot import Curves, HeatMap, plot_of
from ...report.table_report import LoggedTable, load_tables
from ...report.value_format import format_value

_MAX_ROWS, _MAX_CELLS = 200, 4000


@dataclass(frozen=True)
class Table:
    """Logged table as text."""

    title: str
    path: str
    titles: list[str]
    rows: list[list[str]]
    more: int  # number of omitted rows
    problem: str | None = None
    plot: HeatMap | Curves | None = None


def tables(history: History, run_id: str) -> list[Table]:
    """Return the tables of a run, newest first."""
    return [_shorten(table) for table in load_tables(history, history.get(run_id))]


def _shorten(table: LoggedTable) -> Table:
    max_rows = min(_MAX_ROWS, max(10, _MAX_CELLS // max(1, len(table.columns))))
    rows = [[format_value(cell, 200) for cell in row] for row in table.rows[:max_rows]]
    more = max(0, len(table.rows) - max_rows)
    return Table(table.title, table.path, table.columns, rows, more, table.problem, plot_of(table))
