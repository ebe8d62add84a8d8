"""``mlw history …``: past runs."""

from __future__ import annotations

from typing import Any

import click

from ..errors import UsageError
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from . import render
from .filters import filtering, make_query
from .options import confirm, debugging, in_project, maybe_project, rendering
from .records import LIST
from .show import LOGS, show_artifact, show_run, show_runs
from .verbs import Verbs

PATIENCE = 3.0  # seconds for machines elsewhere to answer: a list is of what is known here


@click.group(
    cls=Verbs,
    verbs={
        "compare": ("compare:compare", "Tell what differs between runs"),
        "download": ("download:download", "Copy the outputs of a run to a folder"),
        "promote": ("asset:promote", "Keep an output of a run as an asset"),
    },
)
def history() -> None:
    """Look at past runs."""


@history.command(
    "list", epilog="Example: mlw history list --where 'accuracy > 0.9 and lr < 0.01' --sort -accuracy -n 5"
)
@click.option("--all", "everywhere", is_flag=True, help="Of all projects, not only of this one.")
@filtering
@in_project
@rendering
def list_runs(everywhere: bool, folder: str | None, output: str, query: str | None, **wishes: Any) -> None:
    """List runs, newest first; metrics are columns.

    A condition compares metrics, parameters of the script (--lr 0.1 is lr; --batch-size 32 is batch_size, too) and
    keys such as status, duration or script_name with numbers and "texts", by = != < <= > >=, joined by and, or,
    not. Odd names go in `backticks`. tags = "best" asks for a tag; of a tag team=vision, tags.team is "vision".
    """
    with _reading_folders() as progress:
        store = History(user_paths(), progress.report)
        project = None if everywhere else maybe_project(folder)
        asked = make_query(project.id if project else None, wishes)
        refreshed(store, store.unfinished(project.id if project else None))
        found = store.search(asked)
    show_runs(found, output, query, LIST)


def _reading_folders() -> render.Progress:
    """Shown where the index is made from the folders, which takes a while with many runs."""
    return render.Progress("reading run folders", show=lambda count: f"{count:,.0f}")


def refreshed(store: History, runs: list[Run]) -> list[Run]:
    if not runs:
        return []
    # Takes 40 ms, and a list of runs that have all ended needs none of it.
    from .refresh import refresh  # noqa: PLC0415

    return refresh(store, runs, PATIENCE)


@history.command(epilog="Example: mlw history last -o json")
@in_project
@rendering
def last(folder: str | None, output: str, query: str | None) -> None:
    """Show the record of the newest run."""
    from .experiment import open_run  # noqa: PLC0415 - see refreshed

    follower = open_run(History(user_paths()), None, folder)
    run = follower.refresh()
    show_run(run, output, query, follower.history.paths.root.run(run.id))


@history.command(epilog="Example: mlw history info demo-swift -o json")
@click.argument("run", required=False)
@click.option("-r", "--run", "by_option", metavar="ID", help="The run, as the original took it.")
@click.option("-a", "--artifact", metavar="PATH", help="Instead write one file of it: driver_log, or an output.")
@in_project
@rendering
def info(
    run: str | None, by_option: str | None, artifact: str | None, folder: str | None, output: str, query: str | None
) -> None:
    """Show all that is known of a run; of the newest if none is named."""
    from .experiment import open_run  # noqa: PLC0415 - see refreshed
    from .submit import known_secrets  # noqa: PLC0415

    follower = open_run(History(user_paths()), run or by_option, folder)
    found = follower.refresh()
    if artifact is None:
        show_run(found, output, query, follower.history.paths.root.run(found.id))
    elif artifact in LOGS:
        from .view import stream  # noqa: PLC0415

        stream(follower, secrets=known_secrets(found).values(), live=False)
    else:
        show_artifact(follower.history.paths.root.run(found.id), artifact, known_secrets(found).values())


@history.command(epilog="Example: mlw history remove demo-swift")
@click.argument("runs", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@debugging
def remove(runs: tuple[str, ...], yes: bool) -> None:
    """Delete runs with their logs, metrics and outputs."""
    store = History(user_paths())
    found = refreshed(store, [store.get(name) for name in runs])
    for run in found:
        if not run.status.final:
            raise UsageError(f"run {run.id} has not ended", f"first: mlw cancel {run.id}")
    if not yes:
        confirm(f"Delete {', '.join(run.id for run in found)} for good?")
    for run in found:
        store.remove(run.id)
        render.message(f"deleted run {run.id}")


@history.command(epilog="Example: mlw history rebuild")
@debugging
def rebuild() -> None:
    """Make the index anew from the run folders.

    Runs can be submitted meanwhile.
    """
    with _reading_folders() as progress:
        count = History(user_paths(), progress.report).rebuild()
    render.message(f"the history holds {count} runs")
