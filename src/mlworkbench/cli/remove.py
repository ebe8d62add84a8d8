"""``mlw history remove``: permanently delete runs and report the freed space."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..errors import UsageError
from ..history.child_runs import search_children
from ..history.expression import Compare
from ..history.run_query import Query
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..remote.shared.disk_totals import DiskUsage
from ..remote.shared.layout import is_untracked
from ..report import units
from . import render
from .completion_types import complete_run
from .history import refresh_runs
from .options import confirm, global_options

_MAX_LISTED = 10


@click.command(epilog="Example: mlw history remove demo-swift")
@click.argument("runs", nargs=-1, required=True, shell_complete=complete_run)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation")
@global_options
def remove(runs: tuple[str, ...], yes: bool) -> None:
    """Delete runs with their logs, metrics, and outputs.

    Also deletes the children of a sweep and the nested runs of a script.
    """
    history = History(user_paths())
    named = list({run.id: run for run in map(history.get, runs)}.values())
    _refuse_nested(named)
    children = {run.id: _find_children(history, run) for run in named}
    selected = list({run.id: run for parent in named for run in (parent, *children[parent.id])}.values())
    _refuse_unfinished(_refresh(history, [*selected, *_find_sweeps(history, selected)]))
    sizes = RunSizes(history, selected)
    for run in named[:_MAX_LISTED]:
        _print_run(run, children[run.id], sizes)
    if len(named) > _MAX_LISTED:
        render.message(f"and {len(named) - _MAX_LISTED} more")
    if not yes:
        names = named[0].id if len(named) == 1 else f"these {len(named)} runs"
        try:
            confirm(f"Permanently delete {names} ({units.size(sizes.total)})?")
        except (click.Abort, UsageError):
            render.message("nothing was deleted")
            raise
    # A sweep is removed last, because its record lists the children.
    for run in sorted(selected, key=lambda run: run.spec.sweep is not None):
        history.remove(run.id)
    for run in named:
        suffix = f" and its {_count_children(children[run.id])}" if children[run.id] else ""
        render.message(f"deleted run {run.id}{suffix}")
    render.message(f"freed {units.size(sizes.total)}")
    for target in sorted({run.spec.compute.name for run in selected if run.spec.compute.address}):
        render.message(f"hint: delete their files on {target} with 'mlw experiment clean -t {target} --yes'")


class RunSizes:
    """Disk usage of runs on this machine, excluding hard-linked files that would not be freed."""

    def __init__(self, history: History, runs: Sequence[Run]) -> None:
        totals = DiskUsage()
        self._sizes = {run.id: totals.add(history.paths.root.run(run.id).path)[1] for run in runs}
        self.total = totals.exclusive

    def format(self, runs: Sequence[Run]) -> str:
        return units.size(sum(self._sizes[run.id] for run in runs))


def _print_run(run: Run, children: Sequence[Run], sizes: RunSizes) -> None:
    nested = f", with {units.pluralize(len(run.children), 'nested run')}" if run.children else ""
    suffix = f"; {_count_children(children)}: {sizes.format(children)}" if children else ""
    render.message(f"run {run.id} ({run.spec.entry.name}){nested}: {sizes.format([run])}{suffix}")


def _count_children(children: Sequence[Run]) -> str:
    return units.pluralize(len(children), "child", "children")


def _find_children(history: History, run: Run) -> list[Run]:
    return search_children(history, run.spec, Query(hidden=True, inside=False)) if run.spec.sweep is not None else []


def _find_sweeps(history: History, runs: Sequence[Run]) -> list[Run]:
    """Return the sweeps that the runs belong to. An active sweep still needs its children."""
    ids = {run.spec.parent for run in runs} - {run.id for run in runs}
    return [
        sweep
        for run_id in ids
        if run_id
        for sweep in history.search(Query(where=Compare("run_id", "=", run_id), hidden=True))
    ]


def _refresh(history: History, runs: Sequence[Run]) -> list[Run]:
    outside = [run for run in runs if is_untracked(run.id)]
    return [*outside, *refresh_runs(history, [run for run in runs if not is_untracked(run.id)])]


def _refuse_nested(runs: Sequence[Run]) -> None:
    for run in runs:
        if run.spec.inside:
            raise UsageError(
                f"run {run.id} is nested in run {run.spec.folder} and cannot be deleted alone; nothing was deleted",
                f"delete the whole run with 'mlw history remove {run.spec.folder}', "
                f"or hide this one with 'mlw history archive {run.id}'",
            )


def _refuse_unfinished(runs: Sequence[Run]) -> None:
    for run in runs:
        if not run.status.final:
            hint = "stop its script first" if is_untracked(run.id) else f"cancel it first with 'mlw cancel {run.id}'"
            raise UsageError(f"run {run.id} has not finished; nothing was deleted", hint)
