"""``mlw history fetch``: import runs that another laptop submitted with this account."""

from __future__ import annotations

from typing import Any

import click

from ..errors import UsageError
from ..history.store import History
from ..import_runs import Destination, Imported, import_runs
from ..paths import user_paths
from ..report import units
from ..report.run_records import record, to_display
from ..targets.types import is_elsewhere
from . import render
from .completion_types import complete_target
from .options import get_project, project_option, result_options

_COLUMNS = ("run_id", "status", "script_name", "project", "laptop", "start_time_utc", "name", "new")


@click.command(epilog="Example: mlw history fetch -t my_dsvm")
@click.option("-t", "--target", required=True, shell_complete=complete_target, help="Compute target that has the runs")
@click.option("--outputs", is_flag=True, help="Also fetch the outputs")
@project_option
@result_options
def fetch(target: str, outputs: bool, folder: str | None, output: str, query: str | None) -> int:
    """Import runs that another laptop submitted.

    Fetches the status, metrics, and logs of runs that another laptop submitted to the same account on a target. Repeat
    the command to update them. You can read and cancel imported runs here, but they still belong to the laptop that
    submitted them.
    """
    project = get_project(folder)
    compute = project.compute(target)
    if not is_elsewhere(compute):
        raise UsageError(f"{target} is this machine; its runs are in this history", "list them with 'mlw history list'")
    history = History(user_paths())
    with render.Progress("runs", show=lambda count: f"{count:,.0f}") as progress:
        imported = import_runs(
            history, Destination(compute, project.id, str(project.root)), progress.report, outputs=outputs
        )
    rows = [_row(entry) for entry in imported if entry.run]
    if output == "table" and query is None:
        rows = [{**row, **to_display(row)} for row in rows]
    render.emit(rows, output=output, query=query, columns=_COLUMNS)
    for entry in imported:
        if entry.problem:
            render.warn(f"run {entry.id}: {entry.problem}")
    new = sum(entry.new for entry in imported)
    render.message(
        f"imported {units.pluralize(new, 'new run')} of other laptops from {target} ({len(imported)} in total)"
    )
    return 0


def _row(imported: Imported) -> dict[str, Any]:
    assert imported.run is not None
    facts = record(imported.run)
    return {**{name: facts.get(name) for name in _COLUMNS}, "laptop": imported.laptop, "new": imported.new}
