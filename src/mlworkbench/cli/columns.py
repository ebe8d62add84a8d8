"""Column layout for tables of runs. Values are shortened before columns are dropped."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import UnknownName
from ..sanitize import plain
from .output_formats import HEADINGS, MAX_CELL_WIDTH, cell_text, display_width, heading

PARAMS, METRICS = "params.", "metrics."
_GAP = 3  # width between columns on a terminal
_MIN_WIDTHS = {"arguments": 12, "name": 12, "status": 40}  # minimum width of a shortened value
_DEFAULT_MIN_WIDTH = 9
_NEVER_SHORTENED = ("run_id", "start_time_utc", "age", "duration", "children")
_MAIN_EXTRAS = 4  # number of extras that are dropped only after _DROPPED_NEXT
_DROPPED_FIRST = ("archived", "tags")
_DROPPED_NEXT = ("arguments", "name", "target", "children", "gpu", "project", "script_name", "duration")
_DROPPED_LAST = ("start_time_utc", "age")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_MAX_LISTED = 8  # maximum dropped columns listed by name
LIST_HEADINGS = {"start_time_utc": "Started"}  # relative times, so without (UTC)

Row = Mapping[str, Any]


class FittedTable(NamedTuple):
    columns: dict[str, str]  # key → heading
    rows: list[dict[str, Any]]
    dropped: list[str]  # headings


def fit_columns(
    columns: Mapping[str, str],
    rows: Sequence[Row],
    width: int | None,
    *,
    keep: Iterable[str] = ("run_id", "status"),
    extras: Sequence[str] = (),
    unshortened: Iterable[str] = (),
) -> FittedTable:
    """Return the columns that have values, fitted to ``width``.

    Columns in ``keep`` are never dropped, and values in ``unshortened`` columns are never shortened.
    ``extras`` lists parameters and metrics, most important first.
    """
    kept = set(keep)
    filled = {
        key: title for key, title in columns.items() if key in kept or any(row.get(key) is not None for row in rows)
    }
    if width is None:
        return FittedTable(filled, [dict(row) for row in rows], [])
    unshortened = {*_NEVER_SHORTENED, *unshortened}
    texts = {key: [cell_text(row.get(key), MAX_CELL_WIDTH) for row in rows] for key in filled}
    need = {key: max(display_width(filled[key]), *map(display_width, texts[key])) for key in filled}
    minimum = {key: need[key] if key in unshortened else _min_width(key, filled[key], texts[key]) for key in filled}
    shown, dropped = list(filled), []
    sparse = [key for key in extras if key.startswith(PARAMS) and 2 * sum(map(bool, texts.get(key, ()))) < len(rows)]
    for key in [*_DROPPED_FIRST, *reversed(sparse), *_drop_order(filled, extras)]:
        if _total_width(minimum, shown) <= width:
            break
        if key not in kept and key in shown:
            shown.remove(key)
            dropped.append(filled[key])
    widths = _shrink({key: need[key] for key in shown}, minimum, width)
    shortened = [_shorten_row(row, {key: widths[key] for key in shown if widths[key] < need[key]}) for row in rows]
    return FittedTable({key: filled[key] for key in shown}, shortened, dropped)


def _drop_order(columns: Iterable[str], extras: Sequence[str]) -> list[str]:
    """Return the order in which columns are dropped."""
    ranked = {*_DROPPED_FIRST, *_DROPPED_NEXT, *_DROPPED_LAST, *extras}
    others = [key for key in columns if key not in ranked]
    surplus, main = extras[_MAIN_EXTRAS:], extras[:_MAIN_EXTRAS]
    return [*_DROPPED_FIRST, *reversed(surplus), *_DROPPED_NEXT, *reversed(main), *reversed(others), *_DROPPED_LAST]


def _min_width(key: str, title: str, texts: Sequence[str]) -> int:
    """Return the minimum width of a column. Numbers are never truncated."""
    shortest = _MIN_WIDTHS.get(key, _DEFAULT_MIN_WIDTH)
    return max(
        display_width(title),
        *(display_width(text) if _NUMBER.fullmatch(text) else min(display_width(text), shortest) for text in texts),
    )


def _total_width(widths: Mapping[str, int], keys: Sequence[str]) -> int:
    return sum(widths[key] for key in keys) + _GAP * (len(keys) - 1)


def _shrink(widths: dict[str, int], minimum: Mapping[str, int], width: int) -> dict[str, int]:
    """Reduce the widest columns until the table fits or no column can shrink further."""
    excess = _total_width(widths, list(widths)) - width
    while excess > 0:
        shrinkable = [key for key in widths if widths[key] > minimum[key]]
        if not shrinkable:
            break
        widths[max(shrinkable, key=lambda key: widths[key])] -= 1
        excess -= 1
    return widths


def _shorten_row(row: Row, widths: Mapping[str, int]) -> dict[str, Any]:
    shortened = {key: _truncate(cell_text(row.get(key), MAX_CELL_WIDTH), limit) for key, limit in widths.items()}
    return {**row, **{key: text for key, text in shortened.items() if row.get(key) is not None}}


def _truncate(text: str, limit: int) -> str:
    if display_width(text) <= limit:
        return text
    while text and display_width(text) >= limit:
        text = text[:-1]
    return text.rstrip() + "…"


def select_columns(names: str, rows: Sequence[Row], record_keys: Collection[str]) -> dict[str, str]:
    """Parse ``--columns`` into key → heading. Accept keys, headings, and metric or parameter names."""
    keys = dict.fromkeys([*record_keys, *(key for row in rows for key in row)])
    by_name: dict[str, str] = {}
    for key in keys:
        for name in (key, heading(key), LIST_HEADINGS.get(key, key), key.removeprefix(PARAMS).removeprefix(METRICS)):
            by_name.setdefault(_normalize(name), key)
    selected: dict[str, str] = {}
    for name in filter(None, (part.strip() for part in names.split(","))):
        key_of_name = name if name in keys else by_name.get(_normalize(name))
        if key_of_name is None:
            raise UnknownName("column", name, {key.removeprefix(PARAMS) for key in keys})
        selected[key_of_name] = column_title(key_of_name, record_keys)
    return selected


def column_title(key: str, record_keys: Collection[str]) -> str:
    """Return the title of a column. Metric and parameter names are not changed."""
    if key in LIST_HEADINGS or key in HEADINGS:
        return LIST_HEADINGS.get(key) or HEADINGS[key]
    return heading(key) if key in record_keys else plain(key.removeprefix(PARAMS).removeprefix(METRICS), 60)


def dropped_columns_note(dropped: Sequence[str], *, choosable: bool) -> str:
    """Return the note about columns that did not fit."""
    remaining = f", and {len(dropped) - _MAX_LISTED} more" if len(dropped) > _MAX_LISTED else ""
    advice = "choose with --columns, or use -o json" if choosable else "use -o json"
    return f"note: columns not shown: {', '.join(dropped[:_MAX_LISTED])}{remaining} ({advice})"


def _normalize(name: str) -> str:
    return name.lower().replace("_", " ").replace("-", " ")
