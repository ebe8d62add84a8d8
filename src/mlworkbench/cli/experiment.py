"""``mlw experiment …``: what runs, its output, and how to stop it."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import Any

import click

from ..errors import HistoryError, UsageError
from ..history.children import children_of_sweep
from ..history.store import History, RunRemoved
from ..inferred_state import INTERRUPTED, forget, waits_for_turn
from ..paths import user_name, user_paths
from ..refresh import refresh
from ..report.records import NOW, summary
from ..runs.canceling import ask_to_end, await_end
from ..runs.lookup import current, refuse_outside
from ..runs.results import SweepChildren
from ..runs.submitting import known_secrets, resume_run
from . import render
from .completion import complete_run
from .console import Console
from .filters import choosing_columns
from .opening import find_run, get_run, open_run
from .options import debugging, in_project, maybe_project, rendering
from .show import show_run, show_runs
from .verbs import Verbs
from .view import stream, tell_lost, watch

PATIENCE = 15.0  # seconds for machines elsewhere to answer
_NAMED = 5  # active runs in a hint


@click.group(
    cls=Verbs,
    epilog="Example: mlw experiment submit -c local train.py --lr 0.1",
    verbs={
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
@in_project
@debugging
def logs(run: str | None, follow: bool, raw: bool, folder: str | None) -> int:
    """Show the output of a run.

    Defaults to the newest run.
    """
    history = History(user_paths())
    follower = open_run(history, run, folder)
    refuse_outside(
        follower.run, "its output was not captured", f"show what it logged with 'mlw show {follower.run.id}'"
    )
    follower.refresh()
    known = follower.run
    if not os.path.exists(history.paths.root.run(known.id).path):
        raise HistoryError(f"the folder of run {known.id} was deleted, including its log")
    if follow:
        return watch(follower, known_secrets(known, Console()).values(), raw=raw)
    stream(follower, secrets=known_secrets(known, Console()).values(), live=False, raw=raw)
    tell_lost([follower.run])
    return 0


@experiment.command(epilog="Example: mlw experiment status demo-swift -o json")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "by_option", metavar="ID", help="Same as the argument RUN")
@click.option("-t", "--target", expose_value=False, help="Ignored; accepted for compatibility")
@in_project
@rendering
def status(run: str | None, by_option: str | None, folder: str | None, output: str, query: str | None) -> None:
    """Show run status.

    Defaults to the newest run.
    """
    history = History(user_paths())
    found = current(history, find_run(history, run or by_option, folder))
    if found.spec.inside:
        render.message(f"note: run {found.id} is nested in run {found.spec.folder}")
    show_run(found, output, query, history)


@experiment.command(epilog="Example: mlw experiment ps -o json --query '[].run_id'")
@click.option("-a", "--all", "everywhere", is_flag=True, help="Include all projects")
@choosing_columns
@in_project
@rendering
def ps(everywhere: bool, folder: str | None, output: str, query: str | None, columns: str | None) -> None:
    """List active runs."""
    history = History(user_paths())
    project = None if everywhere else maybe_project(folder)
    runs = refresh(history, history.unfinished(project.id if project else None), PATIENCE, render.warn)
    going = [run for run in runs if not run.status.final]
    waiting: Counter[str | None] = Counter()
    if output == "table" and query is None:  # a sweep may have a thousand of them
        waiting.update(run.spec.parent for run in going if waits_for_turn(run))
        sweeps = {run.id for run in going if run.spec.sweep}
        going = [run for run in going if run.accepted is not None or run.spec.parent not in sweeps]
    if not going and output == "table" and query is None:
        render.message("no active runs")
        render.message("hint: list finished runs with 'mlw ls'")
    else:
        show_runs(going, output, query, NOW, only=columns)
    for sweep, count in waiting.items():
        render.message(f"{count} more runs of sweep {sweep} are waiting to start")
    tell_lost(runs)
    if any(run.detail == INTERRUPTED for run in runs):
        render.message(
            "hint: a submission was interrupted; resume it with 'mlw experiment resume RUN', or cancel it with"
            " 'mlw cancel RUN'"
        )


@experiment.command(epilog="Example: mlw experiment cancel demo-swift")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "by_option", metavar="ID", help="Same as the argument RUN")
@click.option("-t", "--target", expose_value=False, help="Ignored; accepted for compatibility")
@click.option("--grace", type=click.FloatRange(min=0), metavar="SECONDS", help="Time between SIGTERM and SIGKILL (30)")
@click.option("--wait/--no-wait", default=True, help="Wait until the run has ended (default)")
@click.option("--forget", is_flag=True, help="Mark the run as lost; for machines that no longer exist")
@in_project
@rendering
def cancel(**asked: Any) -> int:
    """Cancel a run.

    Sends SIGTERM to all its processes, then SIGKILL.
    """
    name = asked["run"] or asked["by_option"]
    history, console = History(user_paths()), Console()
    if name is None:
        raise UsageError("no run given", _active(history, asked["folder"]))
    follower = open_run(history, name, asked["folder"])
    refuse_outside(follower.run, "mlw cannot cancel it", "stop it where it was started")
    if asked["forget"]:
        for one in (follower.run, *children_of_sweep(history, follower.run.spec)):
            with suppress(RunRemoved):  # meanwhile
                history.note(one.id, forget)
        words = "marked as lost: "
        follower.run = history.get(follower.run.id)
    elif follower.refresh().status.final:
        words = "has already ended: "
    else:
        ask_to_end(history, follower, f"{user_name()} with mlw cancel", asked["grace"], console)
        words = "is being canceled: "
        if asked["wait"]:
            render.message(f"waiting for run {follower.run.id} to end; Ctrl-C stops waiting")
            await_end(history, follower, console)
            words = "has ended: "
            if follower.run.spec.sweep:
                SweepChildren(history, follower.run.spec, follower.target, console).fetch_all()
    render.message(f"run {follower.run.id} {words}{summary(follower.run)}")
    if asked["output"] != "table" or asked["query"]:
        show_run(follower.run, asked["output"], asked["query"])
    return 0


def _active(history: History, folder: str | None) -> str:
    """The hint for a missing RUN: the active runs of this project."""
    project = maybe_project(folder)
    runs = history.unfinished(project.id if project else None)
    names = [run.id for run in runs if not waits_for_turn(run)]
    if not names:
        return "list active runs with 'mlw ps'"
    more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"active runs: {', '.join(names[:_NAMED])}{more}; show them with 'mlw ps'"


@experiment.command(epilog="Example: mlw experiment resume demo-swift")
@click.argument("run", shell_complete=complete_run)
@in_project
@debugging
def resume(run: str, folder: str | None) -> int:
    """Resume an interrupted submission.

    Starts the run and follows it.
    """
    history = History(user_paths())
    found = get_run(history, run, folder)
    refuse_outside(found, "there is no submission to resume", "submit it with 'mlw submit SCRIPT'")
    if found.spec.origin is not None:
        raise UsageError(
            f"run {found.id} was submitted from {found.spec.origin} and can only be resumed there",
            f"follow it with 'mlw logs -f {found.id}'",
        )
    if found.spec.inside:
        raise UsageError(
            f"run {found.id} is nested in run {found.spec.folder}", f"mlw experiment resume {found.spec.folder}"
        )
    started = resume_run(history, found, Console())
    return watch(started.follower, started.secrets.values())
