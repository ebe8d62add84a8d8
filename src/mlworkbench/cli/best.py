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
from .filters import narrowing
from .options import in_project, maybe_project, rendering
from .show import fit

MOST_PARAMETERS = 8  # columns
_NAMED = 40  # metrics, where one was mistyped
_LOOKED_AT = 500  # runs, for the names of their metrics
_WORDS = {"max": "the largest", "min": "the smallest"}
_OTHER = {"max": "min", "min": "max"}


@click.command(epilog="Example: mlw history best --metric accuracy -n 3 --where 'lr < 0.01'")
@click.option("--metric", required=True, metavar="NAME", help="What to judge by.")
@click.option("--goal", type=click.Choice(("max", "min")), help="Whether more is better; by the name if not given.")
@click.option("--by", type=click.Choice(("last", "best")), default="last", help="A series by its last or best value.")
@click.option("-n", "--limit", "most", type=click.IntRange(min=1), default=5, help="How many (5).")
@click.option("--all", "everywhere", is_flag=True, help="Of all projects, not only of this one.")
@narrowing
@in_project
@rendering
def best(metric: str, goal: str | None, by: str, most: int, **asked: Any) -> None:
    """Show the runs with the best value of a metric, children of sweeps and of other runs among them."""
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
        render.message(f"no run that fits has a number called {metric}")
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
    columns = fit(["run_id", metric, *names, "status", "name"], lines, render.width())
    render.emit(lines, output="table", columns=columns)
    why = "as its name suggests" if suggests(metric) else "assumed: its name does not say"
    way = f" ({why}; --goal {_OTHER[goal]} turns it round)" if guessed else ""
    which = " of each series" if ranking.by == "best" else ""
    render.message(f"{_WORDS[goal]} {metric}{which} is the best{way}")
    render.message(f"see it: mlw show {runs[0].id}")


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
