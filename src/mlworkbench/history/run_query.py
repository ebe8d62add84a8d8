"""The query for a list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .expression import Condition


@dataclass(frozen=True)
class Query:
    """The filters and order for a list of runs; newest first by default."""

    project: str | None = None
    hidden: bool = False  # include archived and untracked runs
    archived: bool = False  # include archived runs
    children: bool = True  # include runs of sweeps and nested runs
    inside: bool = True  # include nested runs, which have no folder of their own
    parent: str | None = None
    texts: Sequence[str] = ()  # each must occur in ID, name, script, arguments, tags, or note
    statuses: Sequence[str] = ()
    targets: Sequence[str] = ()
    scripts: Sequence[str] = ()
    tags: Sequence[str] = ()
    since: float | None = None
    where: Condition | None = None
    sort: str | None = None
    descending: bool = False
    oldest: bool = False  # oldest runs first; with ``sort``, only among equal values
    limit: int | None = None
    offset: int = 0  # number of matching runs to skip
