"""The children of a run, as far as they may be: specs that were taken in from a target name runs as they like."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ..errors import HistoryError
from ..model import Compute, Run, RunSpec
from ..targets.types import is_built_in
from .query import Query
from .store import History


def may_join(child: RunSpec, parent: RunSpec) -> bool:
    """Whether one can be the child of the other: on the same machine, and both submitted here, or both elsewhere.

    Otherwise a target could forge, by a sweep that it offers, the results of runs on other machines.
    """
    same_side = (child.origin is None) == (parent.origin is None)
    return same_side and _machine(child.compute) == _machine(parent.compute)


def search_children(history: History, parent: RunSpec, query: Query) -> list[Run]:
    """Those of the search that have this parent."""
    return [run for run in history.search(replace(query, parent=parent.id)) if may_join(run.spec, parent)]


def children_of_sweep(history: History, sweep: RunSpec) -> list[Run]:
    """The runs of a sweep as they are known here, in the order in which they were made."""
    found = []
    for name in dict.fromkeys((sweep.sweep or {}).get("children", ())):
        with suppress(HistoryError):  # somebody removed it
            found.append(history.known(name)[0])
    return [run for run in found if may_join(run.spec, sweep)]


def _machine(compute: Compute) -> tuple[str | int | None, ...]:
    """The same for all files that name one account of one machine."""
    if compute.address is None:  # this machine, or what a plugin knows by the name
        return () if is_built_in(compute.type) else (compute.type, compute.name)
    return compute.address, compute.username, compute.port, compute.jump_host
