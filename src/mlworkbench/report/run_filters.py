"""The words of people turned into a Query."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from ..errors import UnknownName, UsageError
from ..history.expression import Compare, Condition, FilterError, Join, Not, parse, parse_sort
from ..history.parameters import of_run
from ..history.query import OWN, Query
from ..history.store import History
from ..model import Status

_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)", re.IGNORECASE)
_LOOKING_FOR = ("children", "where", "text", "sort", "parent", "tag", "status")
_LOOKED_AT, _NAMED = 200, 30  # runs whose names are looked at; names that are told
_LONGEST = 80  # letters of a name
_SPELT = {"cancelled": Status.CANCELED, "succeeded": Status.COMPLETED}


def make_query(project: str | None, wishes: dict[str, Any], history: History | None = None) -> Query:
    """The options as one value; ``UsageError`` or ``UnknownName`` where they make no sense.

    Children are left out of a plain list. Whoever looks for something may mean one of them.
    """
    sort, descending = parse_sort(wishes["sort"]) if wishes.get("sort") is not None else (None, False)
    parent = (history or History()).get(wishes["parent"]).id if wishes["parent"] is not None else None
    return Query(
        project=None if parent else project,
        archived=wishes["archived"],
        children=any(wishes.get(name) for name in _LOOKING_FOR),
        parent=parent,
        texts=wishes["text"],
        statuses=[_status(word) for word in wishes["status"]],
        targets=wishes["target"],
        scripts=wishes["script"],
        tags=wishes["tag"],
        since=since(wishes["since"], time.time()) if wishes["since"] is not None else None,
        where=_all_of(wishes["where"]),
        sort=sort,
        descending=descending,
        limit=wishes.get("limit"),
    )


def expect(history: History, query: Query) -> None:
    """A name that no run has anything under was mistyped: ``UnknownName`` with those that there are."""
    for name in dict.fromkeys((*_names(query.where), *([query.sort] if query.sort else []))):
        told = Join("or", (Compare(name, ">=", -math.inf), Compare(name, ">=", "")))  # a number, or a text
        if name in OWN or history.search(Query(query.project, hidden=True, where=told, limit=1)):
            continue
        newest = history.search(Query(query.project, hidden=True, limit=_LOOKED_AT))
        known = Counter(one for run in newest for one in (*run.metrics, *of_run(run)))
        if newest:
            near = get_close_matches(name, known, n=1)  # of all of them, not only of those that are told
            hint = f"did you mean {near[0][:_LONGEST]!r}?" if near else None
            raise UnknownName("metric, parameter, or key", name, [one for one, _ in known.most_common(_NAMED)], hint)


def _names(node: Condition | None) -> Iterator[str]:
    if isinstance(node, Compare):
        yield node.name
    elif isinstance(node, Not):
        yield from _names(node.inner)
    elif isinstance(node, Join):
        for part in node.parts:
            yield from _names(part)


def _all_of(conditions: Sequence[str]) -> Condition | None:
    """Each of them must hold."""
    parts = tuple(parse(text) for text in conditions)
    return Join("and", parts) if len(parts) > 1 else parts[0] if parts else None


def _status(word: str) -> str:
    known = {status.value.lower(): status for status in Status}
    found = known.get(word.lower()) or _SPELT.get(word.lower())
    if found is None:
        raise UnknownName("status", word, [status.value for status in Status])
    return found.value


def seconds_of(text: str, option: str) -> float:
    """The age that people mean: ``90d``."""
    found = _AGO.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{option}: invalid age {text!r}", "for example: 12h, 90d, 10w")
    return float(found[1]) * _UNITS[found[2].lower()]


def since(text: str, now: float) -> float:
    """The moment that people mean: ``2h`` ago, or a date in the local time of this machine."""
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return now - float(ago[1]) * _UNITS[ago[2].lower()]
    try:
        # Python 3.10 does not know the Z of ISO 8601.
        return datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip())).timestamp()
    except (ValueError, OverflowError, OSError):
        what, hint = f"invalid age or date {text!r}", "for example: 30min, 2h, 3d, 2w, 2024-05-01, 2024-05-01T12:00"
        raise FilterError(f"--since: {what}", hint, text=what) from None
