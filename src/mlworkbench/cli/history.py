"""``mlw history …``: past runs."""

from __future__ import annotations

import click

from .. import submit as submitting
from ..errors import MlwError, UsageError
from ..follow import Follower
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from . import render
from .experiment import open_run
from .main import Verbs
from .options import debugging, in_project, maybe_project, rendering
from .records import LIST
from .show import show_run, show_runs


@click.group(cls=Verbs)
def history() -> None:
    """Look at past runs."""


@history.command("list", epilog="Example: mlw history list -o json --query \"[?status=='Completed'].run_id\"")
@click.option("--all", "everywhere", is_flag=True, help="Of all projects, not only of this one.")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Only the newest so many.")
@in_project
@rendering
def list_runs(everywhere: bool, limit: int | None, folder: str | None, output: str, query: str | None) -> None:
    """List runs, newest first; metrics are columns."""
    store = History(user_paths())
    project = None if everywhere else maybe_project(folder)
    for run in store.unfinished(project.id if project else None):
        try:
            refreshed(store, run)
        except MlwError as error:  # one run that cannot be asked about must not hide the others
            render.warn(f"run {run.id}: {error.message}")
    runs = store.list(project.id if project else None, limit=limit)
    show_runs(runs, output, query, LIST)


def refreshed(store: History, run: Run) -> Run:
    return Follower(store, run, submitting.open_target(run.spec.compute, store.paths)).refresh()


@history.command(epilog="Example: mlw history last -o json")
@in_project
@rendering
def last(folder: str | None, output: str, query: str | None) -> None:
    """Show the record of the newest run."""
    run = open_run(History(user_paths()), None, folder).refresh()
    show_run(run, output, query)


@history.command(epilog="Example: mlw history info demo-swift -o json")
@click.argument("run", required=False)
@click.option("-r", "--run", "by_option", metavar="ID", help="The run, as the original took it.")
@in_project
@rendering
def info(run: str | None, by_option: str | None, folder: str | None, output: str, query: str | None) -> None:
    """Show all that is known of a run; of the newest if none is named."""
    found = open_run(History(user_paths()), run or by_option, folder).refresh()
    show_run(found, output, query)


@history.command(epilog="Example: mlw history remove demo-swift")
@click.argument("runs", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@debugging
def remove(runs: tuple[str, ...], yes: bool) -> None:
    """Delete runs with their logs, metrics and outputs."""
    store = History(user_paths())
    found = [refreshed(store, store.get(name)) for name in runs]
    for run in found:
        if not run.status.final:
            raise UsageError(f"run {run.id} has not ended", f"first: mlw cancel {run.id}")
    if not yes:
        click.confirm(f"Delete {', '.join(run.id for run in found)} for good?", abort=True, err=True)
    for run in found:
        store.remove(run.id)
        render.message(f"deleted run {run.id}")


@history.command(epilog="Example: mlw history rebuild")
@debugging
def rebuild() -> None:
    """Make the index anew from the run folders."""
    count = History(user_paths()).rebuild()
    render.message(f"the history holds {count} runs")
