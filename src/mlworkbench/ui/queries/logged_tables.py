"""Tables that a script logged with ``log_table``. They are stored as output files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import MlwError
from ...history.store import History
from ...remote.shared.untrusted_json import parse_json
from ...report.value_format import format_value
from ...runfiles.output_file import open_output
from ...sanitize import plain

_MAX_BYTES = 4 << 20  # maximum bytes of a table file
_MAX_TABLES, _MAX_ROWS, _MAX_COLUMNS, _MAX_CELLS = 30, 200, 50, 4000


@dataclass(frozen=True)
class Table:
    """Logged table, shortened for display."""

    title: str
    path: str
    titles: list[str]
    rows: list[list[str]]
    more: int  # number of omitted rows
    problem: str | None = None


def tables(history: History, run_id: str) -> list[Table]:
    """Return the tables of a run, newest first."""
    run = history.get(run_id)
    folder = history.paths.root.run(run.spec.folder)
    paths = [path for path, record in run.files.items() if isinstance(record, dict) and record.get("as") == "table"]
    tables = []
    for path in paths[::-1][:_MAX_TABLES]:
        record = run.files[path]
        step = record.get("step")
        title = plain(f"{record.get('name') or path}" + ("" if step is None else f", step {step}"), 200)
        try:
            with open(open_output(folder, path), "rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except MlwError:
            tables.append(Table(title, path, [], [], 0, "This table is not available on this machine."))
            continue
        tables.append(_table(title, path, data))
    return tables


def _table(title: str, path: str, data: bytes) -> Table:
    if len(data) > _MAX_BYTES:
        return Table(title, path, [], [], 0, "This table is too large to display.")
    try:
        content = parse_json(data)
        columns, rows = content["columns"], content["data"]
        titles = [plain(str(column), 100) for column in columns[:_MAX_COLUMNS]]
        max_rows = min(_MAX_ROWS, max(10, _MAX_CELLS // max(1, len(titles))))
        cells = [_cells(row) for row in rows[:max_rows]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return Table(title, path, [], [], 0, "This file is not a table written by log_table.")
    return Table(title, path, titles, cells, max(0, len(rows) - max_rows))


def _cells(row: Any) -> list[str]:
    return [format_value(cell, 200) for cell in row[:_MAX_COLUMNS]]
