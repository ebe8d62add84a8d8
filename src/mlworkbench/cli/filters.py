"""Which runs a list shows: the options, and the words of people turned into a Query."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from ..errors import UnknownName, UsageError
from ..history.expression import parse, parse_sort
from ..history.query import Query
from ..model import Status

Function = TypeVar("Function", bound=Callable[..., Any])

_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)", re.IGNORECASE)
_SPELT = {"cancelled": Status.CANCELED, "succeeded": Status.COMPLETED}


def filtering(function: Function) -> Function:
    """The options of ``history list`` that narrow and order it; the command gets them as ``**wishes``."""
    options = (
        click.option("--status", multiple=True, metavar="STATUS", help="Only with this status: Completed, Failed, …"),
        click.option("--target", multiple=True, metavar="NAME", help="Only of this compute target."),
        click.option("--script", multiple=True, metavar="NAME", help="Only of this script."),
        click.option("--tag", multiple=True, metavar="TAG", help="Only with this tag."),
        click.option("--since", metavar="WHEN", help="Only since: 30min, 2h, 3d, 2w, or a date."),
        click.option("--where", metavar="CONDITION", help="Only where metrics, parameters or tags fit: 'loss < 0.1'."),
        click.option("--sort", metavar="NAME", help="By this metric, parameter or key; -NAME has the largest first."),
        click.option("-n", "--limit", type=click.IntRange(min=1), help="Only the first so many."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def make_query(project: str | None, wishes: dict[str, Any]) -> Query:
    """The options as one value; ``UsageError`` or ``UnknownName`` where they make no sense."""
    sort, descending = parse_sort(wishes["sort"]) if wishes["sort"] is not None else (None, False)
    return Query(
        project=project,
        statuses=[_status(word) for word in wishes["status"]],
        targets=wishes["target"],
        scripts=wishes["script"],
        tags=wishes["tag"],
        since=since(wishes["since"], time.time()) if wishes["since"] is not None else None,
        where=parse(wishes["where"]) if wishes["where"] is not None else None,
        sort=sort,
        descending=descending,
        limit=wishes["limit"],
    )


def _status(word: str) -> str:
    known = {status.value.lower(): status for status in Status}
    found = known.get(word.lower()) or _SPELT.get(word.lower())
    if found is None:
        raise UnknownName("status", word, [status.value for status in Status])
    return found.value


def since(text: str, now: float) -> float:
    """The moment that people mean: ``2h`` ago, or a date in the local time of this machine."""
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return now - float(ago[1]) * _UNITS[ago[2].lower()]
    try:
        # Python 3.10 does not know the Z of ISO 8601.
        return datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip())).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--since {text!r} is no age and no date", "for example: 30min, 2h, 3d, 2w, 2024-05-01, 2024-05-01T12:00"
        ) from None
