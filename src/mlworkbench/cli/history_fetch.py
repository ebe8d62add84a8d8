"""``mlw history fetch``: runs of this account that another laptop submitted."""

from __future__ import annotations

from typing import Any

import click

from ..errors import UsageError
from ..history.store import History
from ..import_runs import Here, Imported, import_runs
from ..paths import user_paths
from ..report import units
from ..report.records import for_people, record
from ..targets.types import is_elsewhere
from . import render
from .completion import complete_target
from .options import in_project, rendering, the_project

_COLUMNS = ("run_id", "status", "script_name", "project", "laptop", "start_time_utc", "name", "new")


@click.command(epilog="Example: mlw history fetch -t my_dsvm")
@click.option("-t", "--target", required=True, shell_complete=complete_target, help="Compute target that has the runs")
@click.option("--outputs", is_flag=True, help="Also fetch the outputs")
@in_project
@rendering
def fetch(target: str, outputs: bool, folder: str | None, output: str, query: str | None) -> int:
    """Import runs that another laptop submitted.

    Fetches the status, metrics, and logs of runs that another laptop submitted to the same account on a target. Repeat
    the command to update them. You can read and cancel imported runs here, but they still belong to the laptop that
    submitted them.
    """
    here = the_project(folder)
    compute = here.compute(target)
    if not is_elsewhere(compute):
        raise UsageError(f"{target} is this machine; its runs are in this history", "list them with 'mlw history list'")
    history = History(user_paths())
    with render.Progress("runs", show=lambda count: f"{count:,.0f}") as progress:
        found = import_runs(history, Here(compute, here.id, str(here.root)), progress.report, outputs=outputs)
    rows = [_row(one) for one in found if one.run]
    if output == "table" and query is None:
        rows = [{**row, **for_people(row)} for row in rows]
    render.emit(rows, output=output, query=query, columns=_COLUMNS)
    for one in found:
        if one.problem:
            render.warn(f"run {one.id}: {one.problem}")
    new = sum(one.new for one in found)
    render.message(f"imported {units.counted(new, 'new run')} of other laptops from {target} ({len(found)} in total)")
    return 0


def _row(one: Imported) -> dict[str, Any]:
    assert one.run is not None
    known = record(one.run)
    return {**{name: known.get(name) for name in _COLUMNS}, "laptop": one.laptop, "new": one.new}
