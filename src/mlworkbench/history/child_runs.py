"""Child runs: runs of sweeps, and nested runs.

Specs imported from a target can name any parent, so every parent-child relation is validated.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ..errors import HistoryError
from ..model import Compute, Run, RunSpec
from ..targets.types import is_built_in
from .run_query import Query
from .store import History


def may_join(child: RunSpec, parent: RunSpec) -> bool:
    """Return whether ``child`` can be a child of ``parent``.

    Both must be on the same machine, and both must have been submitted from here, or both from
    elsewhere. Otherwise, a target could offer a forged sweep with results of runs on other machines.
    """
    same_side = (child.origin is None) == (parent.origin is None)
    return same_side and machine_of(child.compute) == machine_of(parent.compute)


def search_children(history: History, parent: RunSpec, query: Query) -> list[Run]:
    """Return the runs that match the query and are children of ``parent``."""
    return [run for run in history.search(replace(query, parent=parent.id)) if may_join(run.spec, parent)]


def children_of_sweep(history: History, sweep: RunSpec) -> list[Run]:
    """Return the runs of a sweep that are in the history, in the order in which they were created."""
    runs = []
    for name in dict.fromkeys((sweep.sweep or {}).get("children", ())):
        with suppress(HistoryError):  # the run was removed
            runs.append(history.load(name)[0])
    return [run for run in runs if may_join(run.spec, sweep)]


def machine_of(compute: Compute) -> tuple[str | int | None, ...]:
    """Return a key shared by all compute targets with the same account on the same machine."""
    if compute.address is None:  # this machine, or one that a plugin identifies by name
        return () if is_built_in(compute.type) else (compute.type, compute.name)
    return compute.address, compute.username, compute.port, compute.jump_host
