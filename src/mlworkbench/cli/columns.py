"""Which columns a table of runs has: values are shortened before a column is dropped."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import UnknownName
from ..report.plain import plain
from .formats import HEADINGS, WIDEST_CELL, cell_text, heading, span

PARAMS, METRICS = "params.", "metrics."
_GAP = 3  # between the columns of a table on a terminal
_SHORTEST = {"arguments": 12, "name": 12, "status": 40}  # characters that are left of a long value
_SHORT = 9
_WHOLE = ("run_id", "start_time_utc", "age", "duration", "children")  # never shortened
_ENOUGH = 4  # parameters and metrics that stay as long as other columns can be dropped
_DROPPED_FIRST = ("archived", "tags")
_DROPPED_NEXT = ("arguments", "name", "target", "children", "gpu", "project", "script_name", "duration")
_DROPPED_LAST = ("start_time_utc", "age")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LISTED = 8  # dropped columns that are named
IN_LISTS = {"start_time_utc": "Started"}  # relative there

Row = Mapping[str, Any]


class Fitted(NamedTuple):
    columns: dict[str, str]  # key → heading
    rows: list[dict[str, Any]]
    dropped: list[str]  # headings


def fit(
    columns: Mapping[str, str],
    rows: Sequence[Row],
    width: int | None,
    *,
    keep: Iterable[str] = ("run_id", "status"),
    extras: Sequence[str] = (),
    whole: Iterable[str] = (),
) -> Fitted:
    """The columns that have values, within ``width``.

    ``keep``: columns that are never dropped; ``extras``: parameters and metrics, the most important first; ``whole``:
    columns whose values are never shortened.
    """
    kept = set(keep)
    filled = {
        key: title for key, title in columns.items() if key in kept or any(row.get(key) is not None for row in rows)
    }
    if width is None:
        return Fitted(filled, [dict(row) for row in rows], [])
    whole = {*_WHOLE, *whole}
    texts = {key: [cell_text(row.get(key), WIDEST_CELL) for row in rows] for key in filled}
    need = {key: max(span(filled[key]), *map(span, texts[key])) for key in filled}
    least = {key: need[key] if key in whole else _least(key, filled[key], texts[key]) for key in filled}
    shown, dropped = list(filled), []
    sparse = [key for key in extras if key.startswith(PARAMS) and 2 * sum(map(bool, texts.get(key, ()))) < len(rows)]
    for key in [*_DROPPED_FIRST, *reversed(sparse), *_order(filled, extras)]:
        if _total(least, shown) <= width:
            break
        if key not in kept and key in shown:
            shown.remove(key)
            dropped.append(filled[key])
    widths = _shrink({key: need[key] for key in shown}, least, width)
    short = [_shortened(row, {key: widths[key] for key in shown if widths[key] < need[key]}) for row in rows]
    return Fitted({key: filled[key] for key in shown}, short, dropped)


def _order(columns: Iterable[str], extras: Sequence[str]) -> list[str]:
    """In which order columns are dropped."""
    named = {*_DROPPED_FIRST, *_DROPPED_NEXT, *_DROPPED_LAST, *extras}
    others = [key for key in columns if key not in named]
    surplus, main = extras[_ENOUGH:], extras[:_ENOUGH]
    return [*_DROPPED_FIRST, *reversed(surplus), *_DROPPED_NEXT, *reversed(main), *reversed(others), *_DROPPED_LAST]


def _least(key: str, title: str, texts: Sequence[str]) -> int:
    """How narrow a column may become: a number is never cut."""
    shortest = _SHORTEST.get(key, _SHORT)
    return max(span(title), *(span(text) if _NUMBER.fullmatch(text) else min(span(text), shortest) for text in texts))


def _total(widths: Mapping[str, int], keys: Sequence[str]) -> int:
    return sum(widths[key] for key in keys) + _GAP * (len(keys) - 1)


def _shrink(widths: dict[str, int], least: Mapping[str, int], width: int) -> dict[str, int]:
    """The widest column gives first."""
    over = _total(widths, list(widths)) - width
    while over > 0:
        wide = [key for key in widths if widths[key] > least[key]]
        if not wide:
            break
        widths[max(wide, key=lambda key: widths[key])] -= 1
        over -= 1
    return widths


def _shortened(row: Row, widths: Mapping[str, int]) -> dict[str, Any]:
    cut = {key: _cut(cell_text(row.get(key), WIDEST_CELL), limit) for key, limit in widths.items()}
    return {**row, **{key: text for key, text in cut.items() if row.get(key) is not None}}


def _cut(text: str, limit: int) -> str:
    if span(text) <= limit:
        return text
    while text and span(text) >= limit:
        text = text[:-1]
    return text.rstrip() + "…"


def chosen(names: str, rows: Sequence[Row], known: Collection[str]) -> dict[str, str]:
    """The columns of ``--columns``: key → heading. Accepts keys, headings, and names of metrics and parameters."""
    keys = dict.fromkeys([*known, *(key for row in rows for key in row)])
    by_name: dict[str, str] = {}
    for key in keys:
        for name in (key, heading(key), IN_LISTS.get(key, key), key.removeprefix(PARAMS).removeprefix(METRICS)):
            by_name.setdefault(_folded(name), key)
    found: dict[str, str] = {}
    for name in filter(None, (part.strip() for part in names.split(","))):
        meant = name if name in keys else by_name.get(_folded(name))
        if meant is None:
            raise UnknownName("column", name, {one.removeprefix(PARAMS) for one in keys})
        found[meant] = title(meant, known)
    return found


def title(key: str, known: Collection[str]) -> str:
    """Metrics and parameters keep their names as they are."""
    if key in IN_LISTS or key in HEADINGS:
        return IN_LISTS.get(key) or HEADINGS[key]
    return heading(key) if key in known else plain(key.removeprefix(PARAMS).removeprefix(METRICS), 60)


def dropped_line(dropped: Sequence[str], *, choosable: bool) -> str:
    """The note about columns that did not fit."""
    more = f", and {len(dropped) - _LISTED} more" if len(dropped) > _LISTED else ""
    how = "choose with --columns, or use -o json" if choosable else "use -o json"
    return f"note: columns not shown: {', '.join(dropped[:_LISTED])}{more} ({how})"


def _folded(name: str) -> str:
    return name.lower().replace("_", " ").replace("-", " ")
