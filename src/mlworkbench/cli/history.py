"""``mlw history …``: past runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..report import units
from ..report.records import LIST
from ..report.wishes import expect, make_query
from . import render
from .filters import filtering
from .options import debugging, in_project, maybe_project, rendering
from .show import show_part, show_run, show_runs
from .verbs import Verbs

PATIENCE = 3.0  # seconds for machines elsewhere to answer: a list is of what is known here


@click.group(
    cls=Verbs,
    epilog="Example: mlw history list --where 'accuracy > 0.9' --sort=-accuracy",
    verbs={
        "show": ("page:show", "Show a run on one page"),
        "best": ("best:best", "Show the runs with the best value of a metric"),
        "compare": ("compare:compare", "Tell what differs between runs"),
        "metrics": ("metrics:metrics", "Show what a run measured: table, chart or points"),
        "tag": ("annotate:tag", "Add tags to runs, or take some away"),
        "note": ("annotate:note", "Write a note on a run"),
        "rename": ("annotate:rename", "Give a run another name"),
        "archive": ("annotate:archive", "Leave runs out of lists"),
        "remove": ("remove:remove", "Delete runs, and say what that frees"),
        "download": ("download:download", "Copy the outputs of a run to a folder"),
        "fetch": ("history_fetch:fetch", "Take in runs that another laptop submitted"),
        "export": ("export:export", "Write runs as CSV, JSON, a page, or into MLflow"),
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
@click.option(
    "--group", metavar="NAME", help="A row for each value of a parameter, tags.NAME or key: means of metrics."
)
@in_project
@rendering
def list_runs(everywhere: bool, folder: str | None, output: str, query: str | None, **wishes: Any) -> None:
    """List runs, newest first; metrics are columns.

    A condition compares parameters of the script (--lr 0.1 is lr; --batch-size 32 is batch_size, too), metrics and
    keys such as status, script_name, duration (in seconds) or start_time_utc with numbers and "texts", by = != < <= >
    >= and ~ (has in it), joined by and, or, not. Odd names go in `backticks`; params.lr and metrics.lr tell two of one
    name apart. tags = "best" asks for a tag; of a tag team=vision, tags.team is "vision"; max.loss and min.loss are
    the greatest and the least of a series. Several --where must all hold.

    Children are left out unless something is looked for: --where, --text, --sort, --parent, --tag, --status, or
    --children.
    """
    with _reading_folders() as progress:
        store = History(user_paths(), progress.report)
        project = None if everywhere else maybe_project(folder)
        asked = make_query(project.id if project else None, wishes, store)
        refreshed(store, store.unfinished(project.id if project else None))
        if wishes["group"] is not None:
            asked = replace(asked, children=True, sort=None, limit=None)
        found = store.search(asked)
        if not found or asked.sort is not None:
            expect(store, asked)
    if wishes["group"] is None:
        show_runs(found, output, query, LIST)
        return
    from .group import show_groups  # noqa: PLC0415 - most lists are of runs

    show_groups(found, wishes["group"], {**wishes, "output": output, "query": query})


def _reading_folders() -> render.Progress:
    """Shown where the index is made from the folders, which takes a while with many runs."""
    return render.Progress("reading run folders", show=lambda count: f"{count:,.0f}")


def refreshed(store: History, runs: list[Run]) -> list[Run]:
    if not runs:
        return []
    # Takes 40 ms, and a list of runs that have all ended needs none of it.
    from ..refresh import refresh  # noqa: PLC0415

    return refresh(store, runs, PATIENCE, render.warn)


@history.command(epilog="Example: mlw history last -o json")
@in_project
@rendering
def last(folder: str | None, output: str, query: str | None) -> None:
    """Show the record of the newest run."""
    from .opening import look_up  # noqa: PLC0415 - see refreshed

    store = History(user_paths())
    show_run(look_up(store, None, folder), output, query, store)


@history.command(epilog="Example: mlw history info demo-swift -o json")
@click.argument("run", required=False)
@click.option("-r", "--run", "by_option", metavar="ID", help="The run, as the original took it.")
@click.option("-a", "--artifact", metavar="PATH", help="Instead write one file of it: driver_log, or an output.")
@in_project
@rendering
def info(
    run: str | None, by_option: str | None, artifact: str | None, folder: str | None, output: str, query: str | None
) -> None:
    """Show all that is known of a run as one record; of the newest if none is named."""
    from .opening import look_up  # noqa: PLC0415 - see refreshed

    store = History(user_paths())
    if artifact is not None:
        show_part(store, run or by_option, folder, artifact)
    else:
        show_run(look_up(store, run or by_option, folder), output, query, store)


@history.command(epilog="Example: mlw history rebuild")
@debugging
def rebuild() -> None:
    """Make the index anew from the run folders.

    Runs can be submitted meanwhile.
    """
    with _reading_folders() as progress:
        count = History(user_paths(), progress.report).rebuild()
    render.message(f"the history holds {units.counted(count, 'run')}")
