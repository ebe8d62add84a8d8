"""Canceling a run, also one whose submit was interrupted or whose turn in a sweep has not come."""

from __future__ import annotations

import time

from ..errors import Unreachable
from ..follow import Follower
from ..history.folders import make_folder
from ..history.store import History
from ..hosts.stranger import Stranger
from ..inferred_state import INTERRUPTED, waits_for_turn
from ..model import IN_CONTACT, Run
from ..targets.target import Target
from .frontend import Frontend
from .submitting import put_to_work


def ask_to_end(history: History, follower: Follower, by: str, grace: float | None, frontend: Frontend) -> None:
    """Ask the target to end the run. ``by``: who asks; ``grace``: seconds between SIGTERM and SIGKILL."""
    run = follower.run
    if run.contact != IN_CONTACT:
        raise Unreachable(
            f"cannot cancel run {run.id}: {run.contact}",
            _attach_first(follower) + f"if the machine no longer exists, run 'mlw cancel --forget {run.id}'",
        )
    make_folder(history.paths.root, run.spec)  # an interrupted submit may not have got that far
    _cancel(run, follower.target, by, grace)
    follower.refresh()
    _record_end(history, follower, frontend)


def await_end(history: History, follower: Follower, frontend: Frontend, until: float | None = None) -> None:
    """Wait until a run that is being canceled has ended. ``until`` (monotonic) ends the wait earlier."""
    while not follower.run.status.final and (until is None or time.monotonic() < until):
        for _ in follower.chunks(until=until):
            continue
        _record_end(history, follower, frontend)  # the process that was submitting it has died meanwhile


def _cancel(run: Run, target: Target, by: str, grace: float | None) -> None:
    """A machine that may not have heard of the run yet hears of it now: then it never starts."""
    if run.accepted is not None or not target.host.distant:
        target.cancel(run.id, by, grace)
    else:
        target.cancel(run.id, by, grace, {"spec": run.spec.to_json()})


def _record_end(history: History, follower: Follower, frontend: Frontend) -> None:
    """Where nobody has claimed the run: a supervisor that finds it canceled records that, and starts nothing."""
    if follower.run.detail == INTERRUPTED or waits_for_turn(follower.run):
        follower.run = put_to_work(history, follower.run.spec, follower.target, {}, frontend)


def _attach_first(follower: Follower) -> str:
    if not isinstance(follower.target.host, Stranger):
        return ""
    from ..targets.remote import attach_command  # noqa: PLC0415 - most runs are of machines that answer

    return f"attach it again: {attach_command(follower.run.spec.compute)}; "
