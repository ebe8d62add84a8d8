"""``mlw history tables``: list the tables that a run logged, or print one."""

from __future__ import annotations

import click

from ..errors import HistoryError, UnknownName
from ..history.store import History
from ..paths import user_paths
from ..report.table_report import LoggedTable, list_tables, load_table, load_tables
from ..report.value_format import finite, format_value
from . import render, text_output
from .completion_types import complete_run
from .options import project_option, result_options
from .recorded_sections import TABLE_TITLES, table_row
from .run_lookup import get_current_run

_MAX_ROWS = 200  # maximum rows of a table for people
_MAX_CELL = 60
_MAX_LISTED = 200


@click.command(epilog="Example: mlw history tables demo-swift predictions -o json")
@click.argument("run", required=False, shell_complete=complete_run)
@click.argument("name", required=False)
@project_option
@result_options
def tables(run: str | None, name: str | None, folder: str | None, output: str, query: str | None) -> None:
    """List the tables that a run logged, or print one.

    A table that was logged in several calls is one table. RUN defaults to the newest run.
    """
    history = History(user_paths())
    selected = get_current_run(history, run, folder)
    is_text = output == "table" and query is None
    if name is None:
        listed = load_tables(history, selected, _MAX_LISTED)
        if not is_text:
            rows = [{"name": table.title, "rows": len(table.rows), "columns": table.columns} for table in listed]
            render.emit(rows, output=output, query=query)
        elif listed:
            text_output.write_lines(text_output.format_table(TABLE_TITLES, list(map(table_row, listed)), {1}))
        else:
            render.message(f"run {selected.id} has logged no tables")
        return
    available = list_tables(selected)
    if name not in available:
        raise UnknownName("table", name, available)
    table = load_table(history, selected, name)
    if table.problem and not table.columns:
        raise HistoryError(f"cannot show table {name}: {table.problem}")
    if is_text:
        _print_table(table)
    else:
        render.emit([finite(record) for record in table.records()], output=output, query=query)


def _print_table(table: LoggedTable) -> None:
    cells = [[format_value(cell, _MAX_CELL) for cell in row] for row in table.rows[:_MAX_ROWS]]
    text_output.write_lines(text_output.format_table(table.columns, cells))
    if len(table.rows) > _MAX_ROWS:
        render.message(f"note: showing the first {_MAX_ROWS} of {len(table.rows)} rows; -o json prints all")
    if table.problem:
        render.warn(f"table {table.title}: {table.problem}")
