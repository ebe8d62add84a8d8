"""``mlw experiment …``: what runs, its output, and how to stop it."""

from __future__ import annotations

import os
from typing import Any

import click

from .. import submit as submitting
from ..errors import HistoryError, Unreachable, UsageError
from ..follow import INTERRUPTED, Follower, forget
from ..history.store import History
from ..model import IN_CONTACT
from ..paths import user_name, user_paths
from . import render
from .completion import complete_run
from .options import debugging, in_project, maybe_project, rendering
from .records import NOW, summary
from .refresh import refresh
from .show import show_run, show_runs
from .submit import known_secrets, put_to_work
from .submit import resume as resume_run
from .verbs import Verbs
from .view import stream, tell_lost, watch

PATIENCE = 15.0  # seconds for machines elsewhere to answer


@click.group(
    cls=Verbs,
    verbs={
        "submit": ("submit:submit", "Run a script of the project"),
        "prepare": ("prepare:prepare", "Make the environment ready ahead of a run"),
        "diagnostics": ("diagnostics:diagnostics", "Bundle all that is known of a run in a zip"),
        "clean": ("clean:clean", "Show what can go from this machine, and remove it"),
    },
)
def experiment() -> None:
    """Submit scripts, see and stop what runs."""


def open_run(history: History, prefix: str | None, folder: str | None) -> Follower:
    """The run that was named, else the newest of this project."""
    if prefix is None:
        project = maybe_project(folder)
        newest = history.list(project.id if project else None, hidden=True, limit=1)
        if not newest:
            raise UsageError("there is no run yet", "start one with: mlw submit SCRIPT")
        run = newest[0]
    else:
        run = history.get(prefix)
    return Follower(history, run, submitting.open_target(run.spec.compute, history.paths))


@experiment.command(epilog="Example: mlw experiment logs -f demo-swift")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option("--raw", is_flag=True, help="Do not make terminal escapes harmless.")
@in_project
@debugging
def logs(run: str | None, follow: bool, raw: bool, folder: str | None) -> int:
    """Show the output of a run; of the newest if none is named."""
    history = History(user_paths())
    follower = open_run(history, run, folder)
    follower.refresh()
    known = follower.run
    if not os.path.exists(history.paths.root.run(known.id).path):
        raise HistoryError(f"the folder of run {known.id} is gone, and its log with it")
    if follow:
        return watch(follower, known_secrets(known).values(), raw=raw)
    stream(follower, secrets=known_secrets(known).values(), live=False, raw=raw)
    tell_lost([follower.run])
    return 0


@experiment.command(epilog="Example: mlw experiment status demo-swift -o json")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "by_option", metavar="ID", help="The run, as the original took it.")
@click.option("-t", "--target", expose_value=False, help="Not needed: a run knows its target.")
@in_project
@rendering
def status(run: str | None, by_option: str | None, folder: str | None, output: str, query: str | None) -> None:
    """Tell how a run stands; the newest if none is named."""
    follower = open_run(History(user_paths()), run or by_option, folder)
    show_run(follower.refresh(), output, query)


@experiment.command(epilog="Example: mlw experiment ps -o json --query '[].run_id'")
@click.option("--all", "everywhere", is_flag=True, help="Of all projects, not only of this one.")
@in_project
@rendering
def ps(everywhere: bool, folder: str | None, output: str, query: str | None) -> None:
    """List the runs that have not ended."""
    history = History(user_paths())
    project = None if everywhere else maybe_project(folder)
    runs = refresh(history, history.unfinished(project.id if project else None), PATIENCE)
    show_runs([run for run in runs if not run.status.final], output, query, NOW)
    tell_lost(runs)
    if any(run.detail == INTERRUPTED for run in runs):
        render.message("hint: a submit was interrupted before the start; mlw experiment resume RUN, or mlw cancel RUN")


@experiment.command(epilog="Example: mlw experiment cancel demo-swift")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "by_option", metavar="ID", help="The run, as the original took it.")
@click.option("-t", "--target", expose_value=False, help="Not needed: a run knows its target.")
@click.option("--grace", type=click.FloatRange(min=0), metavar="SECONDS", help="Between TERM and KILL (30).")
@click.option("--wait/--no-wait", default=True, help="Wait until the run has ended.")
@click.option("--forget", is_flag=True, help="Record as lost a run whose machine is gone for good.")
@in_project
@rendering
def cancel(**asked: Any) -> int:
    """Stop a run: TERM, then KILL, for all its processes."""
    name = asked["run"] or asked["by_option"]
    if name is None:
        raise UsageError("say which run to cancel", "mlw ps lists what runs")
    history = History(user_paths())
    follower = open_run(history, name, asked["folder"])
    if asked["forget"]:
        history.note(follower.run.id, forget)
        words = "is given up: "
        follower.run = history.get(follower.run.id)
    elif follower.refresh().status.final:
        words = "has ended already: "
    elif follower.run.contact != IN_CONTACT:
        raise Unreachable(
            f"run {follower.run.id} cannot be ended from here: {follower.run.contact}",
            "if that machine is gone for good: mlw cancel --forget " + follower.run.id,
        )
    else:
        ask_to_end(history, follower, asked["grace"])
        words = "was asked to end: "
        if asked["wait"]:
            words = _await_end(history, follower)
    render.message(f"run {follower.run.id} {words}{summary(follower.run)}")
    if asked["output"] != "table" or asked["query"]:
        show_run(follower.run, asked["output"], asked["query"])
    return 0


def _await_end(history: History, follower: Follower) -> str:
    render.message(f"waiting for run {follower.run.id} to end; Ctrl-C leaves it to that")
    while not follower.run.status.final:
        for _ in follower.chunks():
            continue
        _record_end(history, follower)  # the process that was submitting it has died meanwhile
    return "has ended: "


def ask_to_end(history: History, follower: Follower, grace: float | None) -> None:
    run = follower.run
    history.make_folder(run.spec)  # an interrupted submit may not have got that far
    submitting.cancel(run, follower.target, f"{user_name()} with mlw cancel", grace)
    follower.refresh()
    _record_end(history, follower)


def _record_end(history: History, follower: Follower) -> None:
    """Where nobody has claimed the run: a supervisor that finds it cancelled records that, and starts nothing."""
    if follower.run.detail == INTERRUPTED:
        follower.run = put_to_work(history, follower.run.spec, follower.target, {})


@experiment.command(epilog="Example: mlw experiment resume demo-swift")
@click.argument("run", shell_complete=complete_run)
@in_project
@debugging
def resume(run: str, folder: str | None) -> int:
    """Finish a submit that was interrupted before the run started, then follow it."""
    history = History(user_paths())
    follower = resume_run(history, history.get(run))
    return watch(follower, known_secrets(follower.run).values())
