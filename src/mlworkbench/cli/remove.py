"""``mlw history remove``: runs go for good, and what that frees is said before and after."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..errors import UsageError
from ..history.children import search_children
from ..history.expression import Compare
from ..history.query import Query
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..remote.shared.disk_tally import Tally
from ..remote.shared.layout import is_outside
from ..report import units
from . import render
from .completion import complete_run
from .history import refreshed
from .options import confirm, debugging

_NAMED = 10


@click.command(epilog="Example: mlw history remove demo-swift")
@click.argument("runs", nargs=-1, required=True, shell_complete=complete_run)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation")
@debugging
def remove(runs: tuple[str, ...], yes: bool) -> None:
    """Delete runs with their logs, metrics, and outputs.

    Also deletes the children of a sweep and the nested runs of a script.
    """
    history = History(user_paths())
    named = list({run.id: run for run in map(history.get, runs)}.values())
    _refuse_inside(named)
    below = {run.id: _children(history, run) for run in named}
    every = list({run.id: run for one in named for run in (one, *below[one.id])}.values())
    _refuse_unfinished(_now(history, [*every, *_sweeps_of(history, every)]))
    sizes = Sizes(history, every)
    for run in named[:_NAMED]:
        _announce(run, below[run.id], sizes)
    if len(named) > _NAMED:
        render.message(f"and {len(named) - _NAMED} more")
    if not yes:
        names = named[0].id if len(named) == 1 else f"these {len(named)} runs"
        try:
            confirm(f"Permanently delete {names} ({units.size(sizes.total)})?")
        except (click.Abort, UsageError):
            render.message("nothing was deleted")
            raise
    for run in sorted(every, key=lambda run: run.spec.sweep is not None):  # a sweep goes last: it knows its children
        history.remove(run.id)
    for run in named:
        more = f" and its {_counted(below[run.id])}" if below[run.id] else ""
        render.message(f"deleted run {run.id}{more}")
    render.message(f"freed {units.size(sizes.total)}")
    for target in sorted({run.spec.compute.name for run in every if run.spec.compute.address}):
        render.message(f"hint: delete their files on {target} with 'mlw experiment clean -t {target} --yes'")


class Sizes:
    """What each run takes on this machine's disk; what is there under another name, too, is not freed."""

    def __init__(self, history: History, runs: Sequence[Run]) -> None:
        tally = Tally()
        self._own = {run.id: tally.add(history.paths.root.run(run.id).path)[1] for run in runs}
        self.total = tally.own

    def of(self, runs: Sequence[Run]) -> str:
        return units.size(sum(self._own[run.id] for run in runs))


def _announce(run: Run, below: Sequence[Run], sizes: Sizes) -> None:
    inside = f", with {units.counted(len(run.children), 'nested run')}" if run.children else ""
    more = f"; {_counted(below)}: {sizes.of(below)}" if below else ""
    render.message(f"run {run.id} ({run.spec.entry.name}){inside}: {sizes.of([run])}{more}")


def _counted(below: Sequence[Run]) -> str:
    return units.counted(len(below), "child", "children")


def _children(history: History, run: Run) -> list[Run]:
    return search_children(history, run.spec, Query(hidden=True, inside=False)) if run.spec.sweep is not None else []


def _sweeps_of(history: History, runs: Sequence[Run]) -> list[Run]:
    """A sweep that goes on would miss a child of its own."""
    ids = {run.spec.parent for run in runs} - {run.id for run in runs}
    return [
        found for one in ids if one for found in history.search(Query(where=Compare("run_id", "=", one), hidden=True))
    ]


def _now(history: History, runs: Sequence[Run]) -> list[Run]:
    apart = [run for run in runs if is_outside(run.id)]
    return [*apart, *refreshed(history, [run for run in runs if not is_outside(run.id)])]


def _refuse_inside(runs: Sequence[Run]) -> None:
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
            hint = "stop its script first" if is_outside(run.id) else f"cancel it first with 'mlw cancel {run.id}'"
            raise UsageError(f"run {run.id} has not finished; nothing was deleted", hint)
