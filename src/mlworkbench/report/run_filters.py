"""Convert filter options to a Query."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from ..errors import UnknownName, UsageError
from ..history import run_counts
from ..history.expression import Compare, Condition, FilterError, Join, Not, parse, parse_sort
from ..history.parameters import run_parameters
from ..history.query_sql import RUN_FIELDS
from ..history.run_query import Query
from ..history.store import History
from ..model import Status

_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)", re.IGNORECASE)
_SEARCH_OPTIONS = ("children", "where", "text", "sort", "parent", "tag", "status")
_MAX_RUNS, _MAX_NAMES = 200, 30  # maximum runs to collect names from, and maximum names in a message
_MAX_NAME_LENGTH = 80  # maximum characters of a name in a hint
_STATUS_ALIASES = {"cancelled": Status.CANCELED, "succeeded": Status.COMPLETED}


def make_query(project: str | None, options: dict[str, Any], history: History | None = None) -> Query:
    """Return the query for these options. Raise ``UsageError`` or ``UnknownName`` if invalid.

    A list without search options excludes child runs. A search includes them, because the user may be
    looking for them.
    """
    sort, descending = parse_sort(options["sort"]) if options.get("sort") is not None else (None, False)
    parent = (history or History()).get(options["parent"]).id if options["parent"] is not None else None
    return Query(
        project=None if parent else project,
        archived=options["archived"],
        children=includes_children(options) and not options.get("top_level"),
        parent=parent,
        texts=options["text"],
        statuses=[parse_status(status) for status in options["status"]],
        targets=options["target"],
        scripts=options["script"],
        tags=options["tag"],
        since=parse_since(options["since"], time.time()) if options["since"] is not None else None,
        where=_join_conditions(options["where"]),
        sort=sort,
        descending=descending,
        limit=options.get("limit"),
    )


def includes_children(options: Mapping[str, Any]) -> bool:
    """Return whether the list includes child runs."""
    return any(options.get(name) for name in _SEARCH_OPTIONS)


def require_known_names(history: History, query: Query) -> None:
    """Raise ``UnknownName``, with the existing names, for a name that no run has."""
    for name in dict.fromkeys((*_names(query.where), *([query.sort] if query.sort else []))):
        exists = Join("or", (Compare(name, ">=", -math.inf), Compare(name, ">=", "")))  # a number or a string
        if name in RUN_FIELDS or run_counts.exists(history, Query(query.project, hidden=True, where=exists)):
            continue
        newest = history.search(Query(query.project, hidden=True, limit=_MAX_RUNS))
        counts = Counter(known for run in newest for known in (*run.metrics, *run_parameters(run)))
        if newest:
            near = get_close_matches(name, counts, n=1)  # among all names, not only those in the message
            hint = f"did you mean {near[0][:_MAX_NAME_LENGTH]!r}?" if near else None
            raise UnknownName(
                "metric, parameter, or key", name, [known for known, _ in counts.most_common(_MAX_NAMES)], hint
            )


def _names(node: Condition | None) -> Iterator[str]:
    if isinstance(node, Compare):
        yield node.name
    elif isinstance(node, Not):
        yield from _names(node.inner)
    elif isinstance(node, Join):
        for part in node.parts:
            yield from _names(part)


def _join_conditions(conditions: Sequence[str]) -> Condition | None:
    """Combine conditions with ``and``."""
    parts = tuple(parse(text) for text in conditions)
    return Join("and", parts) if len(parts) > 1 else parts[0] if parts else None


def parse_status(name: str) -> str:
    """Return the status with this name. Raise ``UnknownName`` if there is none."""
    statuses = {status.value.lower(): status for status in Status}
    match = statuses.get(name.lower()) or _STATUS_ALIASES.get(name.lower())
    if match is None:
        raise UnknownName("status", name, [status.value for status in Status])
    return match.value


def parse_age(text: str, option: str) -> float:
    """Parse an age such as ``90d`` and return it in seconds."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{option}: invalid age {text!r}", "for example: 12h, 90d, 10w")
    return float(match[1]) * _UNITS[match[2].lower()]


def parse_since(text: str, now: float) -> float:
    """Parse an age such as ``2h``, or a date in local time, and return a timestamp."""
    match = _AGE.fullmatch(text.strip())
    if match:
        return now - float(match[1]) * _UNITS[match[2].lower()]
    try:
        # Python 3.10 does not support the ISO 8601 suffix Z.
        return datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip())).timestamp()
    except (ValueError, OverflowError, OSError):
        message, hint = f"invalid age or date {text!r}", "for example: 30min, 2h, 3d, 2w, 2024-05-01, 2024-05-01T12:00"
        raise FilterError(f"--since: {message}", hint, text=message) from None
