"""``mlw history best``: the runs with the best value of a metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from ..errors import UnknownName
from ..history.expression import Compare, Condition, Join
from ..history.query import Query
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..report.ranking import Ranking, differing
from ..report.records import outcome
from ..report.values import shown
from ..report.wishes import make_query
from ..sweep import goal_of, suggests
from . import render
from .columns import dropped_line, fit
from .filters import narrowing
from .options import in_project, maybe_project, rendering

MOST_PARAMETERS = 8  # columns
_NAMED = 40  # metrics, where one was mistyped
_LOOKED_AT = 500  # runs, for the names of their metrics
_WORDS = {"max": "highest", "min": "lowest"}
_OTHER = {"max": "min", "min": "max"}


@click.command(epilog="Example: mlw history best --metric accuracy -L 3 --where 'lr < 0.01'")
@click.option("--metric", required=True, metavar="NAME", help="Metric that ranks the runs")
@click.option(
    "--goal",
    type=click.Choice(("max", "min")),
    help="Whether higher or lower is better (default: guessed from the name)",
)
@click.option(
    "--by", type=click.Choice(("last", "best")), default="last", help="Rank a series by its last or best value"
)
@click.option("-L", "--limit", "-n", "most", type=click.IntRange(min=1), default=5, help="Maximum number of runs (5)")
@click.option("-a", "--all", "everywhere", is_flag=True, help="Include all projects")
@narrowing
@in_project
@rendering
def best(metric: str, goal: str | None, by: str, most: int, **asked: Any) -> None:
    """Show the best runs by a metric.

    Includes sweep runs and nested runs.
    """
    history = History(user_paths())
    project = None if asked["everywhere"] else maybe_project(asked["folder"])
    narrow = make_query(project.id if project else None, {**asked, "children": True}, history)
    wanted = goal or goal_of(metric)
    ranking = Ranking(metric, wanted, by)
    found = ranking.find(history, narrow, most)
    if not found:
        _expect(history, project.id if project else None, metric)
    rows = [ranking.row(run) for run in found]
    if asked["output"] == "table" and asked["query"] is None:
        _show(found, rows, ranking, guessed=goal is None)
    else:
        render.emit(rows, output=asked["output"], query=asked["query"])


def _show(runs: Sequence[Run], rows: Sequence[dict[str, Any]], ranking: Ranking, guessed: bool) -> None:
    metric, goal = ranking.metric, ranking.goal
    if not runs:
        render.message(f"no matching run has the metric {metric}")
        return
    params = differing(runs)
    names = [name for name in params if name != metric][:MOST_PARAMETERS]
    lines = [
        {
            "run_id": run.id,
            metric: row["value"],
            **{name: shown(params[name][at]) for name in names},
            "status": outcome(run),
            "name": run.name,
        }
        for at, (run, row) in enumerate(zip(runs, rows, strict=True))
    ]
    titles = {"run_id": "Run ID", metric: metric, **{name: name for name in names}, "status": "Status", "name": "Name"}
    fitted = fit(titles, lines, render.width(), keep=("run_id", metric, "status"), extras=names)
    render.emit(fitted.rows, output="table", columns=fitted.columns)
    if fitted.dropped:
        render.message(dropped_line(fitted.dropped, choosable=False))
    why = "guessed from its name" if suggests(metric) else "the default"
    way = f" ({why}; use --goal {_OTHER[goal]} for the opposite)" if guessed else ""
    which = " of each series" if ranking.by == "best" else ""
    render.message(f"ranked by {_WORDS[goal]} {metric}{which}{way}")
    render.message(f"hint: show the best run with 'mlw show {runs[0].id}'")


def _expect(history: History, project: str | None, metric: str) -> None:
    """A metric that no run ever had was mistyped."""
    name = f"metrics.{metric}"
    told: Condition = Join("or", (Compare(name, ">=", -math.inf), Compare(name, ">=", "")))  # a number, or a text
    if history.search(Query(project, archived=True, where=told, limit=1)):
        return
    newest = history.search(Query(project, archived=True, limit=_LOOKED_AT))
    counts = Counter(name for run in newest for name in run.metrics)
    if metric not in counts:
        raise UnknownName("metric", metric, [name for name, _ in counts.most_common(_NAMED)])
