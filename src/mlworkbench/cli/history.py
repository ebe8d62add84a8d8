"""``mlw history …``: past runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ..errors import UsageError
from ..history.query import Query
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..report import units
from ..report.records import LIST
from ..report.wishes import expect, make_query
from . import render
from .command import under
from .filters import choosing_columns, filtering
from .messages import NO_RUNS, SUBMIT_ONE
from .options import debugging, in_project, maybe_project, rendering
from .show import show_part, show_run, show_runs
from .verbs import Verbs

_FILTERS = ("status", "target", "script", "tag", "text", "since", "where", "parent")
PATIENCE = 3.0  # seconds for machines elsewhere to answer: a list is of what is known here


@click.group(
    cls=Verbs,
    epilog="Example: mlw history list --where 'accuracy > 0.9' --sort=-accuracy",
    verbs={
        "show": ("page:show", "Show a run"),
        "best": ("best:best", "Show the best runs by a metric"),
        "compare": ("compare:compare", "Compare runs"),
        "metrics": ("metrics:metrics", "Show metrics as a table, chart, or points"),
        "tag": ("annotate:tag", "Add, remove, or list tags"),
        "note": ("annotate:note", "Set or remove the note of a run"),
        "rename": ("annotate:rename", "Rename a run"),
        "archive": ("annotate:archive", "Hide runs from lists"),
        "remove": ("remove:remove", "Delete runs"),
        "download": ("download:download", "Download the outputs of a run"),
        "fetch": ("history_fetch:fetch", "Import runs submitted from another machine"),
        "export": ("export:export", "Export runs to CSV, JSON, HTML, or MLflow"),
        "promote": ("asset:promote", "Promote an output of a run to an asset"),
    },
)
def history() -> None:
    """List, compare, and manage runs."""


@history.command(
    "list", epilog="Example: mlw history list --where 'accuracy > 0.9 and lr < 0.01' --sort -accuracy -L 5"
)
@click.option("-a", "--all", "everywhere", is_flag=True, help="Include all projects")
@filtering
@under(
    "Display", click.option("--group", metavar="NAME", help="Group by parameter, tags.NAME, or key; show mean metrics")
)
@in_project
@choosing_columns
@rendering
def list_runs(everywhere: bool, folder: str | None, output: str, query: str | None, **wishes: Any) -> None:
    """List runs.

    The newest run comes first. Columns include metrics and the parameters that differ between runs.

    A --where condition compares a field with a number or a "string". Fields are script parameters (batch_size for
    --batch-size), metrics, and keys such as status, script_name, duration (seconds), or start_time_utc. Operators: = !=
    < <= > >= and ~ (contains), combined with and, or, not. Quote unusual names in `backticks`; use params.lr and
    metrics.lr if both exist. tags = "best" matches a tag; for the tag team=vision, tags.team is "vision". max.loss and
    min.loss are the extremes of a series. If --where is repeated, all conditions must match.

    Sweep runs and nested runs are hidden unless you use --children, --parent, --where, --text, --sort, --tag, or
    --status.
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
    if project is None and not everywhere:
        render.message("note: not in a project; listing the runs of all projects")
    if not found and output == "table" and query is None:
        _explain_none(store, asked, wishes)
        return
    if wishes["group"] is None:
        _show(found, output, query, wishes["columns"])
        return
    if wishes["columns"] is not None:
        raise UsageError("--columns and --group cannot be used together", "omit one of them")
    from .group import show_groups  # noqa: PLC0415 - most lists are of runs

    show_groups(found, wishes["group"], {**wishes, "output": output, "query": query})


def _explain_none(store: History, asked: Query, wishes: dict[str, Any]) -> None:
    """Why a list is empty."""
    if any(wishes[name] for name in _FILTERS):
        render.message("no runs match")
    elif store.search(Query(asked.project, archived=True, limit=1)):
        render.message("no runs match")
        render.message("hint: 'mlw history list --archived' includes archived runs")
    else:
        render.message(NO_RUNS)
        render.message(f"hint: {SUBMIT_ONE}")


def _show(runs: list[Run], output: str, query: str | None, columns: str | None) -> None:
    projects = {run.spec.project_id for run in runs}
    show_runs(runs, output, query, (*LIST[:3], "project", *LIST[3:]) if len(projects) > 1 else LIST, only=columns)


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
    """Show the newest run."""
    from .opening import look_up  # noqa: PLC0415 - see refreshed

    store = History(user_paths())
    show_run(look_up(store, None, folder), output, query, store)


@history.command(epilog="Example: mlw history info demo-swift -o json")
@click.argument("run", required=False)
@click.option("-r", "--run", "by_option", metavar="ID", help="Same as the argument RUN")
@click.option("--artifact", "-a", metavar="PATH", help="Print one file instead: driver_log, or an output")
@in_project
@rendering
def info(
    run: str | None, by_option: str | None, artifact: str | None, folder: str | None, output: str, query: str | None
) -> None:
    """Show all facts about a run.

    Defaults to the newest run.
    """
    from .opening import look_up  # noqa: PLC0415 - see refreshed

    store = History(user_paths())
    if artifact is not None:
        show_part(store, run or by_option, folder, artifact)
    else:
        show_run(look_up(store, run or by_option, folder), output, query, store)


@history.command(epilog="Example: mlw history rebuild")
@debugging
def rebuild() -> None:
    """Rebuild the index from the run folders.

    Runs can be submitted in the meantime.
    """
    with _reading_folders() as progress:
        count = History(user_paths(), progress.report).rebuild()
    render.message(f"indexed {units.counted(count, 'run')}")
