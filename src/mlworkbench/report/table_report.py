"""Tables that a script logged with ``log_table`` of mlw or MLflow. They are stored as output files.

Each call of mlw's ``log_table`` writes a file. Files with the same name and step are one table. Histograms and
precision-recall curves of TensorBoard are tables, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import MlwError
from ..history.store import History
from ..model import Run
from ..remote.shared.layout import RunFolder
from ..remote.shared.untrusted_json import parse_json
from ..runfiles.output_file import open_output
from ..sanitize import plain

_MAX_BYTES = 16 << 20  # maximum total bytes of the files that are read at a time
_MAX_FILE = 4 << 20
_MAX_TABLES, _MAX_PARTS, _MAX_COLUMNS = 30, 1000, 50
_MAX_NAME = 200
_PLOTS = "tensorboard/"  # folder of the tables that mlw creates from TensorBoard data

_Part = tuple[list[str], list[list[Any]], list[Any]]  # columns, rows, and histogram of each row, if any, of a file


@dataclass(frozen=True)
class LoggedTable:
    """A table with unformatted values. ``problem`` explains why there are no rows, or not all."""

    title: str  # the name, and the step if there is one
    path: str  # of its first file
    columns: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    buckets: list[Any] = field(default_factory=list)  # counts for each row of a histogram, unchecked
    problem: str | None = None

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a mapping, for programs."""
        for row in self.rows:
            yield dict(zip(self.columns, row, strict=False))


def list_tables(run: Run) -> dict[str, list[str]]:
    """Return the titles of a run's tables with the paths of their files, in the order of logging."""
    tables: dict[str, list[str]] = {}
    for path, facts in run.files.items():
        if facts.get("as") == "table":
            step = facts.get("step")
            title = plain(f"{facts.get('name') or path}" + ("" if step is None else f", step {step}"), _MAX_NAME)
            tables.setdefault(title, []).append(path)
    return tables


def load_tables(history: History, run: Run, limit: int = _MAX_TABLES) -> list[LoggedTable]:
    """Return the tables of a run: those of the script, newest first, then those of TensorBoard data."""
    folder = history.paths.root.run(run.spec.folder)
    tables: list[LoggedTable] = []
    budget = _MAX_BYTES
    newest = list(list_tables(run).items())[::-1]
    newest.sort(key=lambda item: item[1][0].startswith(_PLOTS))  # there are many of them
    for title, paths in newest[:limit]:
        table, budget = _read(folder, title, paths, budget)
        tables.append(table)
    return tables


def load_table(history: History, run: Run, title: str) -> LoggedTable:
    """Return one of the tables in ``list_tables``."""
    return load_parts(history.paths.root.run(run.spec.folder), title, list_tables(run)[title])


def load_parts(folder: RunFolder, title: str, paths: list[str]) -> LoggedTable:
    """Return a table that consists of these files."""
    return _read(folder, title, paths, _MAX_BYTES)[0]


def _read(folder: RunFolder, title: str, paths: list[str], budget: int) -> tuple[LoggedTable, int]:
    """Read at most ``budget`` bytes. Return the table and the rest of the budget."""
    parts: list[_Part] = []
    problem = None if len(paths) <= _MAX_PARTS else f"only the first {_MAX_PARTS} of {len(paths)} files are shown"
    for path in paths[:_MAX_PARTS]:
        try:
            with open(open_output(folder, path), "rb") as file:
                data = file.read(min(_MAX_FILE, budget) + 1)
        except MlwError:
            problem = "not available on this machine"
            continue
        if len(data) > min(_MAX_FILE, budget):
            problem = "too large to display"
            break
        budget -= len(data)
        try:
            parts.append(_parse(data))
        except (ValueError, KeyError, TypeError, RecursionError):
            problem = "not a table written by log_table"
    return LoggedTable(title, paths[0], *_join(parts), problem), budget


def _parse(data: bytes) -> _Part:
    content = parse_json(data)
    columns = [plain(str(column), 100) for column in content["columns"][:_MAX_COLUMNS]]
    buckets = content.get("buckets")
    rows = [list(row[: len(columns)]) for row in content["data"]]
    return columns, rows, buckets if isinstance(buckets, list) else []


def _join(parts: list[_Part]) -> _Part:
    """Return the rows of all parts. A cell is None if its part lacks the column."""
    if not parts:
        return [], [], []
    columns = parts[0][0]
    if any(names != columns for names, _, _ in parts):
        columns = list(dict.fromkeys(name for names, _, _ in parts for name in names))[:_MAX_COLUMNS]
        records = (dict(zip(names, row, strict=False)) for names, rows, _ in parts for row in rows)
        return columns, [[record.get(name) for name in columns] for record in records], []
    buckets = parts[0][2] if len(parts) == 1 else []
    return columns, [row for _, rows, _ in parts for row in rows], buckets
