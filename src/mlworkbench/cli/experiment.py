"""``mlw experiment …``: show, follow, cancel, and resume runs."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import Any

import click

from ..errors import HistoryError, UsageError
from ..history.child_runs import children_of_sweep
from ..history.store import History, RunRemoved
from ..inferred_state import INTERRUPTED, forget, has_started, waits_for_turn
from ..paths import user_name, user_paths
from ..refresh_runs import refresh
from ..report.run_records import ACTIVE_COLUMNS, summary
from ..runs.canceling import ask_to_end, await_end
from ..runs.open_run import current, refuse_untracked
from ..runs.result_download import SweepChildren
from ..runs.submitting import known_secrets, resume_run
from . import render
from .command_tree import LazyGroup
from .completion_types import complete_run
from .filters import columns_option
from .follow_view import report_lost_contact, stream, watch
from .options import get_project_or_none, global_options, project_option, result_options
from .run_lookup import find_run, get_run, open_run
from .run_tables import show_run, show_runs
from .submission_console import Console

TIMEOUT = 15.0  # seconds to wait for remote machines
_MAX_NAMED = 5  # maximum active runs in a hint


@click.group(
    cls=LazyGroup,
    epilog="Example: mlw experiment submit -c local train.py --lr 0.1",
    lazy_commands={
        "submit": ("submit:submit", "Run a script of the project"),
        "prepare": ("prepare:prepare", "Build the environment before a run"),
        "diagnostics": ("diagnostics:diagnostics", "Create a diagnostics zip for a run"),
        "clean": ("clean:clean", "Delete files that are no longer needed"),
    },
)
def experiment() -> None:
    """Submit, follow, and cancel runs."""


@experiment.command(epilog="Example: mlw experiment logs -f demo-swift")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run ends")
@click.option("--raw", is_flag=True, help="Print terminal escapes unfiltered")
@project_option
@global_options
def logs(run: str | None, follow: bool, raw: bool, folder: str | None) -> int:
    """Show the output of a run.

    Defaults to the newest run.
    """
    history = History(user_paths())
    follower = open_run(history, run, folder)
    refuse_untracked(
        follower.run, "its output was not captured", f"show what it logged with 'mlw show {follower.run.id}'"
    )
    follower.refresh()
    current_run = follower.run
    if not os.path.exists(history.paths.root.run(current_run.id).path):
        raise HistoryError(f"the folder of run {current_run.id} was deleted, including its log")
    if follow:
        return watch(follower, known_secrets(current_run, Console()).values(), raw=raw)
    stream(follower, secrets=known_secrets(current_run, Console()).values(), live=False, raw=raw)
    report_lost_contact([follower.run])
    return 0


@experiment.command(epilog="Example: mlw experiment status demo-swift -o json")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "run_option", metavar="ID", help="Same as the argument RUN")
@click.option("-t", "--target", expose_value=False, help="Ignored; accepted for compatibility")
@project_option
@result_options
def status(run: str | None, run_option: str | None, folder: str | None, output: str, query: str | None) -> None:
    """Show run status.

    Defaults to the newest run.
    """
    history = History(user_paths())
    selected = current(history, find_run(history, run or run_option, folder))
    if selected.spec.inside:
        render.message(f"note: run {selected.id} is nested in run {selected.spec.folder}")
    show_run(selected, output, query, history)


@experiment.command(epilog="Example: mlw experiment ps -o json --query '[].run_id'")
@click.option("-a", "--all", "all_projects", is_flag=True, help="Include all projects")
@columns_option
@project_option
@result_options
def ps(all_projects: bool, folder: str | None, output: str, query: str | None, columns: str | None) -> None:
    """List active runs."""
    history = History(user_paths())
    project = None if all_projects else get_project_or_none(folder)
    runs = refresh(history, history.unfinished(project.id if project else None), TIMEOUT, render.warn)
    active = [run for run in runs if not run.status.final]
    waiting: Counter[str | None] = Counter()
    if output == "table" and query is None:  # only count waiting runs: a sweep may have thousands
        waiting.update(run.spec.parent for run in active if waits_for_turn(run))
        sweeps = {run.id for run in active if run.spec.sweep}
        active = [run for run in active if has_started(run) or run.spec.parent not in sweeps]
    if not active and output == "table" and query is None:
        render.message("no active runs")
        render.message("hint: list finished runs with 'mlw ls'")
    else:
        show_runs(active, output, query, ACTIVE_COLUMNS, only=columns)
    for sweep, count in waiting.items():
        render.message(f"{count} more runs of sweep {sweep} are waiting to start")
    report_lost_contact(runs)
    if any(run.detail == INTERRUPTED for run in runs):
        render.message(
            "hint: a submission was interrupted; resume it with 'mlw experiment resume RUN', or cancel it with"
            " 'mlw cancel RUN'"
        )


@experiment.command(epilog="Example: mlw experiment cancel demo-swift")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "run_option", metavar="ID", help="Same as the argument RUN")
@click.option("-t", "--target", expose_value=False, help="Ignored; accepted for compatibility")
@click.option("--grace", type=click.FloatRange(min=0), metavar="SECONDS", help="Time between SIGTERM and SIGKILL (30)")
@click.option("--wait/--no-wait", default=True, help="Wait until the run has ended (default)")
@click.option("--forget", is_flag=True, help="Mark the run as lost; for machines that no longer exist")
@project_option
@result_options
def cancel(**options: Any) -> int:
    """Cancel a run.

    Sends SIGTERM to all its processes, then SIGKILL.
    """
    name = options["run"] or options["run_option"]
    history, console = History(user_paths()), Console()
    if name is None:
        raise UsageError("no run given", _active_runs_hint(history, options["folder"]))
    follower = open_run(history, name, options["folder"])
    refuse_untracked(follower.run, "mlw cannot cancel it", "stop it where it was started")
    if options["forget"]:
        for run in (follower.run, *children_of_sweep(history, follower.run.spec)):
            with suppress(RunRemoved):  # another command removed the run
                history.update(run.id, forget)
        outcome = "marked as lost: "
        follower.run = history.get(follower.run.id)
    elif follower.refresh().status.final:
        outcome = "has already ended: "
    else:
        ask_to_end(history, follower, f"{user_name()} with mlw cancel", options["grace"], console)
        outcome = "is being canceled: "
        if options["wait"]:
            render.message(f"waiting for run {follower.run.id} to end; Ctrl-C stops waiting")
            await_end(history, follower, console)
            outcome = "has ended: "
            if follower.run.spec.sweep:
                SweepChildren(history, follower.run.spec, follower.target, console).fetch_all()
    render.message(f"run {follower.run.id} {outcome}{summary(follower.run)}")
    if options["output"] != "table" or options["query"]:
        show_run(follower.run, options["output"], options["query"])
    return 0


def _active_runs_hint(history: History, folder: str | None) -> str:
    """Return the hint for a missing RUN argument. It lists this project's active runs."""
    project = get_project_or_none(folder)
    runs = history.unfinished(project.id if project else None)
    names = [run.id for run in runs if not waits_for_turn(run)]
    if not names:
        return "list active runs with 'mlw ps'"
    remaining = f", and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"active runs: {', '.join(names[:_MAX_NAMED])}{remaining}; show them with 'mlw ps'"


@experiment.command(epilog="Example: mlw experiment resume demo-swift")
@click.argument("run", shell_complete=complete_run)
@project_option
@global_options
def resume(run: str, folder: str | None) -> int:
    """Resume an interrupted submission.

    Starts the run and follows it.
    """
    history = History(user_paths())
    interrupted = get_run(history, run, folder)
    refuse_untracked(interrupted, "there is no submission to resume", "submit it with 'mlw submit SCRIPT'")
    if interrupted.spec.origin is not None:
        raise UsageError(
            f"run {interrupted.id} was submitted from {interrupted.spec.origin} and can only be resumed there",
            f"follow it with 'mlw logs -f {interrupted.id}'",
        )
    if interrupted.spec.inside:
        raise UsageError(
            f"run {interrupted.id} is nested in run {interrupted.spec.folder}",
            f"mlw experiment resume {interrupted.spec.folder}",
        )
    started = resume_run(history, interrupted, Console())
    return watch(started.follower, started.secrets.values())
