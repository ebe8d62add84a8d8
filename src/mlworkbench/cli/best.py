"""``mlw history best``: the runs with the best value of a metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from ..config.metric_goals import known_goals
from ..errors import UnknownName, UsageError
from ..history.expression import Compare, Condition, Join
from ..history.run_query import Query
from ..history.store import History
from ..metric_goal import MAX, find_goal
from ..model import Run
from ..paths import user_paths
from ..report.ranking import Ranking, differing
from ..report.run_filters import make_query
from ..report.run_records import outcome
from ..report.value_format import format_value
from . import render
from .columns import dropped_columns_note, fit_columns
from .filters import filter_options
from .options import get_project_or_none, project_option, result_options

MAX_PARAMETERS = 8  # maximum number of parameter columns
_MAX_SUGGESTIONS = 40  # maximum metric names suggested
_RUNS_SEARCHED = 500  # maximum number of newest runs searched
_SUPERLATIVES = {"max": "highest", "min": "lowest"}
_OPPOSITE = {"max": "min", "min": "max"}


@click.command(epilog="Example: mlw history best --metric accuracy -L 3 --where 'lr < 0.01'")
@click.option("--metric", required=True, metavar="NAME", help="Metric that ranks the runs")
@click.option(
    "--goal",
    type=click.Choice(("max", "min")),
    help="Whether higher or lower is better (default: from tags or the metric's name)",
)
@click.option(
    "--by", type=click.Choice(("last", "best")), default="last", help="Rank a series by its last or best value"
)
@click.option("-L", "--limit", "-n", type=click.IntRange(min=1), default=5, help="Maximum number of runs (5)")
@click.option("-a", "--all", "all_projects", is_flag=True, help="Include all projects")
@filter_options
@project_option
@result_options
def best(metric: str, goal: str | None, by: str, limit: int, **options: Any) -> None:
    """Show the best runs by a metric.

    Includes sweep runs and nested runs.
    """
    history = History(user_paths())
    project = None if options["all_projects"] else get_project_or_none(options["folder"])
    query = make_query(project.id if project else None, {**options, "children": True}, history)
    candidates = history.search(replace(query, where=_with_metric(metric, query.where), limit=_RUNS_SEARCHED))
    if not candidates:
        _check_metric_name(history, project.id if project else None, metric)
    chosen_goal = goal or find_goal(metric, candidates, known_goals(project, candidates))
    if candidates and chosen_goal is None:
        raise UsageError(
            f"it is not known whether higher or lower values of {metric} are better", "add --goal max or --goal min"
        )
    ranking = Ranking(metric, chosen_goal or MAX, by)
    runs = ranking.find(history, query, limit)
    rows = [ranking.row(run) for run in runs]
    if options["output"] == "table" and options["query"] is None:
        _print_table(runs, rows, ranking, guessed=goal is None)
    else:
        render.emit(rows, output=options["output"], query=options["query"])


def _print_table(runs: Sequence[Run], rows: Sequence[dict[str, Any]], ranking: Ranking, guessed: bool) -> None:
    metric, goal = ranking.metric, ranking.goal
    if not runs:
        render.message(f"no matching run has the metric {metric}")
        return
    params = differing(runs)
    parameters = [name for name in params if name != metric][:MAX_PARAMETERS]
    table_rows = [
        {
            "run_id": run.id,
            metric: row["value"],
            **{name: format_value(params[name][index]) for name in parameters},
            "status": outcome(run),
            "name": run.name,
        }
        for index, (run, row) in enumerate(zip(runs, rows, strict=True))
    ]
    titles = {
        "run_id": "Run ID",
        metric: metric,
        **{name: name for name in parameters},
        "status": "Status",
        "name": "Name",
    }
    fitted = fit_columns(titles, table_rows, render.width(), keep=("run_id", metric, "status"), extras=parameters)
    render.emit(fitted.rows, output="table", columns=fitted.columns)
    if fitted.dropped:
        render.message(dropped_columns_note(fitted.dropped, choosable=False))
    explanation = f" (use --goal {_OPPOSITE[goal]} for the opposite)" if guessed else ""
    scope = " of each series" if ranking.by == "best" else ""
    render.message(f"ranked by {_SUPERLATIVES[goal]} {metric}{scope}{explanation}")
    render.message(f"hint: show the best run with 'mlw show {runs[0].id}'")


def _with_metric(metric: str, where: Condition | None) -> Condition:
    """Return a condition for runs that have logged the metric, as numbers or strings."""
    name = f"metrics.{metric}"
    has_metric: Condition = Join("or", (Compare(name, ">=", -math.inf), Compare(name, ">=", "")))
    return has_metric if where is None else Join("and", (has_metric, where))


def _check_metric_name(history: History, project: str | None, metric: str) -> None:
    """Raise ``UnknownName`` if no run has ever logged the metric."""
    if history.search(Query(project, archived=True, where=_with_metric(metric, None), limit=1)):
        return
    newest = history.search(Query(project, archived=True, limit=_RUNS_SEARCHED))
    counts = Counter(name for run in newest for name in run.metrics)
    if metric not in counts:
        raise UnknownName("metric", metric, [name for name, _ in counts.most_common(_MAX_SUGGESTIONS)])
