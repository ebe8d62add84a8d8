"""Tables that a script logged with log_table: files among its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import MlwError
from ...history.store import History
from ...remote.shared.untrusted import parse_json
from ...report.plain import plain
from ...report.values import shown
from ...runfiles.outputfile import open_output

_LARGEST = 4 << 20  # bytes of a file that is read
_MOST, _ROWS, _COLUMNS, _CELLS = 30, 200, 50, 4000


@dataclass(frozen=True)
class Table:
    """One of them, as far as it is shown."""

    title: str
    path: str
    titles: list[str]
    rows: list[list[str]]
    more: int  # rows that are not shown
    problem: str | None = None


def tables(history: History, run_id: str) -> list[Table]:
    """The newest first."""
    run = history.get(run_id)
    folder = history.paths.root.run(run.spec.folder)
    paths = [path for path, told in run.files.items() if isinstance(told, dict) and told.get("as") == "table"]
    found = []
    for path in paths[::-1][:_MOST]:
        told = run.files[path]
        step = told.get("step")
        title = plain(f"{told.get('name') or path}" + ("" if step is None else f", step {step}"), 200)
        try:
            with open(open_output(folder, path), "rb") as file:
                data = file.read(_LARGEST + 1)
        except MlwError:
            found.append(Table(title, path, [], [], 0, "This table is not available on this machine."))
            continue
        found.append(_table(title, path, data))
    return found


def _table(title: str, path: str, data: bytes) -> Table:
    if len(data) > _LARGEST:
        return Table(title, path, [], [], 0, "This table is too large to display.")
    try:
        told = parse_json(data)
        columns, rows = told["columns"], told["data"]
        titles = [plain(str(one), 100) for one in columns[:_COLUMNS]]
        most = min(_ROWS, max(10, _CELLS // max(1, len(titles))))
        cells = [_cells(row) for row in rows[:most]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return Table(title, path, [], [], 0, "This file is not a table written by log_table.")
    return Table(title, path, titles, cells, max(0, len(rows) - most))


def _cells(row: Any) -> list[str]:
    return [shown(one, 200) for one in row[:_COLUMNS]]
