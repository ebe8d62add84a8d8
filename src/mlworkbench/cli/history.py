"""``mlw history …``: list and show past runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ..errors import UsageError
from ..history.run_query import Query
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..report import units
from ..report.run_filters import make_query, require_known_names
from ..report.run_records import LIST_COLUMNS
from . import render
from .command_tree import LazyGroup
from .filters import columns_option, group_option, list_options, view_option
from .messages import NO_RUNS, SUBMIT_HINT
from .options import get_project_or_none, global_options, project_option, result_options
from .run_tables import show_run, show_run_file, show_runs

_FILTERS = ("status", "target", "script", "tag", "text", "since", "where", "parent")
TIMEOUT = 3.0  # seconds to wait for remote machines; lists may show the last known state


@click.group(
    cls=LazyGroup,
    epilog="Example: mlw history list --where 'accuracy > 0.9' --sort=-accuracy",
    lazy_commands={
        "show": ("run_page:show", "Show a run"),
        "best": ("best:best", "Show the best runs by a metric"),
        "compare": ("compare:compare", "Compare runs"),
        "metrics": ("metrics:metrics", "Show metrics as a table, chart, or points"),
        "traces": ("traces:traces", "Show MLflow traces"),
        "tables": ("tables:tables", "Show logged tables"),
        "view": ("history_view:view", "Save and list views of the run list"),
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
@click.option("-a", "--all", "all_projects", is_flag=True, help="Include all projects")
@list_options
@group_option
@view_option
@project_option
@columns_option
@result_options
def list_runs(
    all_projects: bool, folder: str | None, output: str, query: str | None, view_name: str | None, **options: Any
) -> None:
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
    if view_name is not None:
        from .history_view import apply_view, open_views  # noqa: PLC0415 - only --view needs it

        is_table = output == "table" and query is None
        options = apply_view(options, view_name, open_views(folder, all_projects), is_table=is_table)
    if options["group"] is not None and options["columns"] is not None:
        raise UsageError("--columns and --group cannot be used together", "omit one of them")
    with _index_progress() as progress:
        store = History(user_paths(), progress.report)
        project = None if all_projects else get_project_or_none(folder)
        run_query = make_query(project.id if project else None, options, store)
        refresh_runs(store, store.unfinished(project.id if project else None))
        if options["group"] is not None:
            run_query = replace(run_query, children=True, sort=None, limit=None)
        runs = store.search(run_query) if options["group"] is None else []
        if run_query.sort is not None or (not runs and not _matches(store, run_query)):
            require_known_names(store, run_query)
    if project is None and not all_projects:
        render.message("note: not in a project; listing the runs of all projects")
    if options["group"] is not None:
        from .group_option import show_groups  # noqa: PLC0415 - only --group needs it

        options |= {"output": output, "query": query}
        is_shown = show_groups(store, run_query, options["group"], options, project)
    else:
        is_shown = bool(runs) or output != "table" or query is not None
        if is_shown:
            _print_runs(runs, output, query, options["columns"])
    if not is_shown:
        _explain_empty_list(store, run_query, options)


def _matches(store: History, run_query: Query) -> bool:
    from ..history.run_counts import exists  # noqa: PLC0415 - most lists are not empty

    return exists(store, run_query)


def _explain_empty_list(store: History, run_query: Query, options: dict[str, Any]) -> None:
    """Print why the list is empty."""
    if any(options[name] for name in _FILTERS):
        render.message("no runs match")
    elif store.search(Query(run_query.project, archived=True, limit=1)):
        render.message("no runs match")
        render.message("hint: 'mlw history list --archived' includes archived runs")
    else:
        render.message(NO_RUNS)
        render.message(f"hint: {SUBMIT_HINT}")


def _print_runs(runs: list[Run], output: str, query: str | None, columns: str | None) -> None:
    projects = {run.spec.project_id for run in runs}
    show_runs(
        runs,
        output,
        query,
        (*LIST_COLUMNS[:3], "project", *LIST_COLUMNS[3:]) if len(projects) > 1 else LIST_COLUMNS,
        only=columns,
    )


def _index_progress() -> render.Progress:
    """Return the progress display for indexing run folders, which is slow for many runs."""
    return render.Progress("reading run folders", show=lambda count: f"{count:,.0f}")


def refresh_runs(store: History, runs: list[Run]) -> list[Run]:
    if not runs:
        return []
    # The import takes 40 ms and is not needed if all runs have finished.
    from ..refresh_runs import refresh  # noqa: PLC0415

    return refresh(store, runs, TIMEOUT, render.warn)


@history.command(epilog="Example: mlw history last -o json")
@project_option
@result_options
def last(folder: str | None, output: str, query: str | None) -> None:
    """Show the newest run."""
    from .run_lookup import get_current_run  # noqa: PLC0415 - see refresh_runs

    store = History(user_paths())
    show_run(get_current_run(store, None, folder), output, query, store)


@history.command(epilog="Example: mlw history info demo-swift -o json")
@click.argument("run", required=False)
@click.option("-r", "--run", "run_option", metavar="ID", help="Same as the argument RUN")
@click.option("--artifact", "-a", metavar="PATH", help="Print one file instead: driver_log, or an output")
@project_option
@result_options
def info(
    run: str | None, run_option: str | None, artifact: str | None, folder: str | None, output: str, query: str | None
) -> None:
    """Show all facts about a run.

    Defaults to the newest run.
    """
    from .run_lookup import get_current_run  # noqa: PLC0415 - see refresh_runs

    store = History(user_paths())
    if artifact is not None:
        show_run_file(store, run or run_option, folder, artifact)
    else:
        show_run(get_current_run(store, run or run_option, folder), output, query, store)


@history.command(epilog="Example: mlw history rebuild")
@global_options
def rebuild() -> None:
    """Rebuild the index from the run folders.

    Runs can be submitted in the meantime.
    """
    with _index_progress() as progress:
        count = History(user_paths(), progress.report).rebuild()
    render.message(f"indexed {units.pluralize(count, 'run')}")
