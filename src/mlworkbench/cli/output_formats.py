"""A result as text: JSON, TSV, or the cells of a table and their alignment. Writes nothing."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum

from ..report.plain import plain

Columns = Sequence[str] | Mapping[str, str]

# Longer cells would make every line of a plain table as long as the longest; JSON has them whole.
WIDEST_CELL = 200
_PIECE = 12  # words may be cut into pieces that long
_GAP = 3  # between the columns of a table on a terminal

# JSON leaves these as they are, a terminal does not; escaped they are the same JSON.
_UNSAFE = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")(:?)|\b(?:true|false|null)\b|-?\d[\d.eE+-]*')
_KEY, _TEXT, _OTHER = "34", "32", "36"  # blue, green, cyan

# Headings of keys for which a capital letter and spaces are not enough.
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
    "output_bytes": "Output size (bytes)",
    "leftovers": "Leftover processes",
    "left_out": "Skipped",
    "experiment_id": "Project ID",
    "parent_run_id": "Parent run ID",
    "user_id": "User",
    "description": "Note",
    "spark_ui": "Spark UI",
    "spark_history": "Spark history",
}
_ABBREVIATIONS = {"cpu": "CPU", "gpu": "GPU", "id": "ID", "mlflow": "MLflow", "url": "URL"}
_SNAKE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
# First word of a run's status → name of a color, and its code.
_STATES = {
    "Completed": ("green", "32"),
    "Failed": ("red", "31"),
    "Canceled": ("yellow", "33"),
    "Running": ("cyan", "36"),
    "Preparing": ("blue", "34"),
    "Submitting": ("blue", "34"),
    "Queued": ("yellow", "33"),
}


class Grid:
    """The cells of a table, as text; without titles the first column holds the names."""

    def __init__(
        self,
        titles: Sequence[str] | None,
        rows: Sequence[Sequence[str]],
        right: Collection[int] = (),
        status: int | None = None,
    ) -> None:
        self.titles = titles
        self.rows = rows
        self.right = right  # the columns of numbers
        self.status = status  # the column of a run's status; without titles, the row

    def is_status(self, row: int, column: int) -> bool:
        return self.status is not None and ((column if self.titles else row) == self.status)


def simple(value: object) -> object:
    """Only what JSON has, so that all formats and queries see the same."""
    if isinstance(value, Enum):
        return simple(value.value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(simple(key)): simple(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [simple(item) for item in value]
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def as_json(data: object, encoding: str) -> str:
    """Strict JSON, readable by people too, in characters that the encoding has."""
    text = _dump(data, indent=2)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = _dump(data, indent=2, ascii_only=True)
    return text + "\n"


def tint(text: str) -> str:
    """JSON with the colours of a terminal."""

    def paint(found: re.Match[str]) -> str:
        word, colon = found[1], found[2]
        colour = _OTHER if word is None else _KEY if colon else _TEXT
        return f"\x1b[{colour}m{word or found[0]}\x1b[0m{colon or ''}"

    return _TOKEN.sub(paint, text)


def as_tsv(data: object, *, ordered: bool) -> str:
    """As the Azure CLI writes it: no titles, keys in alphabetical order unless a query chose one.

    Unlike there a nested value is compact JSON, and rows with different keys keep their columns.
    """
    rows = data if isinstance(data, list) else [data]
    keys = _keys(rows)
    if not ordered:
        keys.sort()
    lines = []
    for row in rows:
        if isinstance(row, dict):
            fields = [_field(row.get(key)) for key in keys]
        elif isinstance(row, list):
            fields = [_field(item) for item in row]
        else:
            fields = [str(row).lower() if isinstance(row, bool) else _field(row)]
        lines.append("\t".join(fields) + "\n")
    return "".join(lines)


def as_grid(data: object, columns: Columns | None, *, as_queried: bool = False) -> Grid | None:
    """The table of a result; None if there is nothing to show. ``columns``: keys, or keys with their headings.

    ``as_queried``: the keys are those that a query chose, and stay as they are.
    """
    if data is None or data == [] or data == {}:
        return None
    title = _capital if as_queried else heading
    if isinstance(data, dict):
        keys = list(columns or data)
        names = columns if isinstance(columns, Mapping) else {key: title(key) for key in keys}
        status = keys.index("status") if "status" in keys else None
        return Grid(None, [(plain(names[key]), cell_text(data.get(key))) for key in keys], status=status)
    if not isinstance(data, list):
        return Grid(None, [(cell_text(data),)])
    keys, titles, rows = _lay_out(data, columns, title)
    right = {index for index in range(len(titles)) if _numeric([row[index] for row in rows])}
    status = keys.index("status") if "status" in keys else None
    return Grid(titles, [[cell_text(value, WIDEST_CELL) for value in row] for row in rows], right, status)


def heading(key: str) -> str:
    """``Run ID`` of ``run_id``."""
    known = HEADINGS.get(key)
    words = [_ABBREVIATIONS.get(word, word) for word in key.split("_")]
    return known or _capital(" ".join(words) if _SNAKE.fullmatch(key) else key)


def state_colour(text: str, *, code: bool = False) -> str:
    """The color of a run's status, by name or as the number in an escape sequence; empty if it has none."""
    return _STATES.get(text.partition(" ")[0], ("", ""))[code]


def align(grid: Grid) -> str:
    """The table in plain columns, for files and pipes."""
    lines = [grid.titles, *grid.rows] if grid.titles else list(grid.rows)
    widths = [max(span(line[index]) for line in lines) for index in range(len(lines[0]))]
    if grid.titles:
        lines.insert(1, ["-" * width for width in widths])
    text = []
    for line in lines:
        cells = []
        for index, (cell, width) in enumerate(zip(line, widths, strict=True)):
            gap = " " * (width - span(cell))
            cells.append(gap + cell if index in grid.right else cell + gap)
        text.append("  ".join(cells).rstrip() + "\n")
    return "".join(text)


def fits(grid: Grid, width: int) -> bool:
    """Whether a table of this width can be read: no word of it is cut into small pieces."""
    lines = [grid.titles, *grid.rows] if grid.titles else list(grid.rows)
    need = 0
    for index in range(len(lines[0])):
        longest = max((span(word) for line in lines for word in line[index].split()), default=0)
        need += min(longest, _PIECE) + _GAP
    return need - _GAP <= width


def stack(grid: Grid) -> str:
    """A line for each cell, for a terminal that is too narrow for a table."""
    if not grid.titles:
        return "".join(f"{': '.join(row)}\n" for row in grid.rows)
    titles = grid.titles
    blocks = ["".join(f"{title}: {cell}\n" for title, cell in zip(titles, row, strict=True)) for row in grid.rows]
    return "\n".join(blocks)


def _dump(data: object, *, indent: int | None = None, ascii_only: bool = False) -> str:
    separators = (",", ":") if indent is None else None
    try:
        text = json.dumps(data, indent=indent, separators=separators, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(data), indent=indent, separators=separators, ensure_ascii=ascii_only)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _finite(value: object) -> object:
    """Strict JSON has no NaN, and null would say that there was no value: it becomes a word."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return _number(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float, digits: int | None = None) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value) if digits is None else f"{value:.{digits}g}"


def _field(value: object) -> str:
    if isinstance(value, float):
        return _number(value)
    return plain(_dump(value) if isinstance(value, (dict, list)) else str(value))


def cell_text(value: object, limit: int | None = None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _number(value, 6)
    return plain(_dump(value) if isinstance(value, (dict, list)) else str(value), limit)


def _keys(rows: Sequence[object]) -> list[str]:
    """All keys of all rows, in the order of their first appearance."""
    return list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row))


def _lay_out(
    data: list[object], columns: Columns | None, title: Callable[[str], str]
) -> tuple[list[str], list[str], list[list[object]]]:
    """Keys, titles, and rows of equal length; a query may have made any mixture."""
    keys: list[str] = []
    if any(isinstance(row, dict) for row in data):
        keys = list(columns or _keys(data)) or [""]
        titles = [plain(columns[key]) for key in keys] if isinstance(columns, Mapping) else _titles(keys, title)
        rows = [[row.get(key) for key in keys] if isinstance(row, dict) else [row] for row in data]
    elif any(isinstance(row, list) for row in data):
        rows = [list(row) if isinstance(row, list) else [row] for row in data]
        titles = [f"Column{index + 1}" for index in range(max(1, *map(len, rows)))]
    else:
        return keys, ["Result"], [[value] for value in data]
    return keys, titles, [row + [None] * (len(titles) - len(row)) for row in rows]


def _titles(keys: Sequence[str], title: Callable[[str], str]) -> list[str]:
    """As they read best, unless two would look alike: ``loss`` and ``Loss`` are two metrics."""
    made = [plain(title(key)) for key in keys]
    return [title if made.count(title) == 1 else plain(key) for key, title in zip(keys, made, strict=True)]


def _capital(key: str) -> str:
    return plain(key[:1].upper() + key[1:])


def span(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else 0 if unicodedata.combining(char) else 1 for char in text
    )


def _numeric(values: Sequence[object]) -> bool:
    numbers = [value for value in values if value is not None]
    return bool(numbers) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in numbers)
