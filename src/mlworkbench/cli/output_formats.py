"""Format results as JSON, TSV, or table cells, without writing them."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum

from ..sanitize import plain

Columns = Sequence[str] | Mapping[str, str]

# A longer cell would widen every line of a plain table. JSON contains the full value.
MAX_CELL_WIDTH = 200
_MIN_WORD_PIECE = 12  # minimum length of the pieces of a wrapped word
_GAP = 3  # width between columns on a terminal

# Characters that JSON allows but a terminal interprets. Escaping them does not change the JSON value.
_UNSAFE = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")(:?)|\b(?:true|false|null)\b|-?\d[\d.eE+-]*')
_KEY_COLOR, _STRING_COLOR, _LITERAL_COLOR = "34", "32", "36"  # blue, green, cyan

# Headings that cannot be derived from the key.
HEADINGS = {
    "run_id": "Run ID",
    "run_number": "Run number",
    "script_name": "Script",
    "created_utc": "Submitted (UTC)",
    "start_time_utc": "Started (UTC)",
    "end_time_utc": "Finished (UTC)",
    "age": "Submitted",
    "gpu": "GPU",
    "gpus": "GPUs",
    "gpu_warning": "GPU warning",
    "gpu_cause": "GPU cause",
    "gpu_remedy": "GPU remedy",
    "uuid": "UUID",
    "log_bytes": "Log size (bytes)",
    "checkpoint_bytes": "Checkpoint size (bytes)",
    "output_bytes": "Output size (bytes)",
    "leftovers": "Leftover processes",
    "left_out": "Skipped",
    "unkept": "Not kept",
    "experiment_id": "Project ID",
    "parent_run_id": "Parent run ID",
    "resumed_run_id": "Resumed from",
    "user_id": "User",
    "description": "Note",
    "spark_ui": "Spark UI",
    "spark_history": "Spark history",
}
_ABBREVIATIONS = {"cpu": "CPU", "gpu": "GPU", "id": "ID", "mlflow": "MLflow", "url": "URL"}
_SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
# First word of a run's status → color name and code.
_STATUS_COLORS = {
    "Completed": ("green", "32"),
    "Failed": ("red", "31"),
    "Canceled": ("yellow", "33"),
    "Running": ("cyan", "36"),
    "Preparing": ("blue", "34"),
    "Submitting": ("blue", "34"),
    "Queued": ("yellow", "33"),
}


class Grid:
    """Table cells as strings. Without titles, the first column contains the names."""

    def __init__(
        self,
        titles: Sequence[str] | None,
        rows: Sequence[Sequence[str]],
        right: Collection[int] = (),
        status: int | None = None,
    ) -> None:
        self.titles = titles
        self.rows = rows
        self.right = right  # indexes of numeric columns
        self.status = status  # index of the status column, or of the status row if there are no titles

    def is_status(self, row: int, column: int) -> bool:
        return self.status is not None and ((column if self.titles else row) == self.status)


def to_json_types(value: object) -> object:
    """Convert a value to JSON types, so that all formats and queries use the same data."""
    if isinstance(value, Enum):
        return to_json_types(value.value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(to_json_types(key)): to_json_types(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json_types(item) for item in value]
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def as_json(data: object, encoding: str) -> str:
    """Return strict, indented JSON, escaped to ASCII if the encoding lacks a character."""
    text = _dump_json(data, indent=2)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = _dump_json(data, indent=2, ascii_only=True)
    return text + "\n"


def colorize_json(text: str) -> str:
    """Color JSON for a terminal."""

    def paint(match: re.Match[str]) -> str:
        string, colon = match[1], match[2]
        color = _LITERAL_COLOR if string is None else _KEY_COLOR if colon else _STRING_COLOR
        return f"\x1b[{color}m{string or match[0]}\x1b[0m{colon or ''}"

    return _TOKEN.sub(paint, text)


def as_tsv(data: object, *, ordered: bool) -> str:
    """Return TSV like the Azure CLI: no header, and sorted keys unless a query selects them.

    Unlike in the Azure CLI, nested values are compact JSON, and rows with different keys keep their
    columns.
    """
    rows = data if isinstance(data, list) else [data]
    keys = _collect_keys(rows)
    if not ordered:
        keys.sort()
    lines = []
    for row in rows:
        if isinstance(row, dict):
            fields = [_tsv_field(row.get(key)) for key in keys]
        elif isinstance(row, list):
            fields = [_tsv_field(item) for item in row]
        else:
            fields = [str(row).lower() if isinstance(row, bool) else _tsv_field(row)]
        lines.append("\t".join(fields) + "\n")
    return "".join(lines)


def as_grid(data: object, columns: Columns | None, *, as_queried: bool = False) -> Grid | None:
    """Return the table for a result, or None if it is empty.

    ``columns`` contains keys, or keys with headings. If ``as_queried`` is true, a query selected the
    keys, so they are not replaced by headings.
    """
    if data is None or data == [] or data == {}:
        return None
    title = _capitalize if as_queried else heading
    if isinstance(data, dict):
        keys = list(columns or data)
        names = columns if isinstance(columns, Mapping) else {key: title(key) for key in keys}
        status = keys.index("status") if "status" in keys else None
        return Grid(None, [(plain(names[key]), cell_text(data.get(key))) for key in keys], status=status)
    if not isinstance(data, list):
        return Grid(None, [(cell_text(data),)])
    keys, titles, rows = _build_rows(data, columns, title)
    right = {index for index in range(len(titles)) if _is_numeric([row[index] for row in rows])}
    status = keys.index("status") if "status" in keys else None
    return Grid(titles, [[cell_text(value, MAX_CELL_WIDTH) for value in row] for row in rows], right, status)


def heading(key: str) -> str:
    """Return the heading for a key, such as ``Run ID`` for ``run_id``."""
    fixed = HEADINGS.get(key)
    words = [_ABBREVIATIONS.get(word, word) for word in key.split("_")]
    return fixed or _capitalize(" ".join(words) if _SNAKE_CASE.fullmatch(key) else key)


def status_color(text: str, *, code: bool = False) -> str:
    """Return the color name or escape code for a run's status, or an empty string."""
    return _STATUS_COLORS.get(text.partition(" ")[0], ("", ""))[code]


def format_table(grid: Grid) -> str:
    """Format the table as plain aligned text, for files and pipes."""
    lines = [grid.titles, *grid.rows] if grid.titles else list(grid.rows)
    widths = [max(display_width(line[index]) for line in lines) for index in range(len(lines[0]))]
    if grid.titles:
        lines.insert(1, ["-" * width for width in widths])
    text = []
    for line in lines:
        cells = []
        for index, (cell, width) in enumerate(zip(line, widths, strict=True)):
            gap = " " * (width - display_width(cell))
            cells.append(gap + cell if index in grid.right else cell + gap)
        text.append("  ".join(cells).rstrip() + "\n")
    return "".join(text)


def fits_width(grid: Grid, width: int) -> bool:
    """Return whether the table is readable at this width, without words broken into small pieces."""
    lines = [grid.titles, *grid.rows] if grid.titles else list(grid.rows)
    need = 0
    for index in range(len(lines[0])):
        longest = max((display_width(word) for line in lines for word in line[index].split()), default=0)
        need += min(longest, _MIN_WORD_PIECE) + _GAP
    return need - _GAP <= width


def format_records(grid: Grid) -> str:
    """Return one line per cell, for terminals that are too narrow for a table."""
    if not grid.titles:
        return "".join(f"{': '.join(row)}\n" for row in grid.rows)
    titles = grid.titles
    blocks = ["".join(f"{title}: {cell}\n" for title, cell in zip(titles, row, strict=True)) for row in grid.rows]
    return "\n".join(blocks)


def _dump_json(data: object, *, indent: int | None = None, ascii_only: bool = False) -> str:
    separators = (",", ":") if indent is None else None
    try:
        text = json.dumps(data, indent=indent, separators=separators, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:
        from ..history.journal_parsing import strict_json  # noqa: PLC0415 - few results contain such values

        text = json.dumps(strict_json(data), indent=indent, separators=separators, ensure_ascii=ascii_only)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _format_number(value: float, digits: int | None = None) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value) if digits is None else f"{value:.{digits}g}"


def _tsv_field(value: object) -> str:
    if isinstance(value, float):
        return _format_number(value)
    return plain(_dump_json(value) if isinstance(value, (dict, list)) else str(value))


def cell_text(value: object, limit: int | None = None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _format_number(value, 6)
    return plain(_dump_json(value) if isinstance(value, (dict, list)) else str(value), limit)


def _collect_keys(rows: Sequence[object]) -> list[str]:
    """Return the keys of all rows in order of first appearance."""
    return list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row))


def _build_rows(
    data: list[object], columns: Columns | None, title: Callable[[str], str]
) -> tuple[list[str], list[str], list[list[object]]]:
    """Return keys, titles, and rows of equal length. Query results may have mixed shapes."""
    keys: list[str] = []
    if any(isinstance(row, dict) for row in data):
        keys = list(columns or _collect_keys(data)) or [""]
        titles = [plain(columns[key]) for key in keys] if isinstance(columns, Mapping) else _unique_titles(keys, title)
        rows = [[row.get(key) for key in keys] if isinstance(row, dict) else [row] for row in data]
    elif any(isinstance(row, list) for row in data):
        rows = [list(row) if isinstance(row, list) else [row] for row in data]
        titles = [f"Column{index + 1}" for index in range(max(1, *map(len, rows)))]
    else:
        return keys, ["Result"], [[value] for value in data]
    return keys, titles, [row + [None] * (len(titles) - len(row)) for row in rows]


def _unique_titles(keys: Sequence[str], title: Callable[[str], str]) -> list[str]:
    """Return readable titles, or the keys if titles are equal, as for ``loss`` and ``Loss``."""
    titles = [plain(title(key)) for key in keys]
    return [title if titles.count(title) == 1 else plain(key) for key, title in zip(keys, titles, strict=True)]


def _capitalize(key: str) -> str:
    return plain(key[:1].upper() + key[1:])


def display_width(text: str) -> int:
    """Return the number of terminal columns that the text occupies."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else 0 if unicodedata.combining(char) else 1 for char in text
    )


def _is_numeric(values: Sequence[object]) -> bool:
    numbers = [value for value in values if value is not None]
    return bool(numbers) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in numbers)
