"""Cancel runs, including those whose submission was interrupted or that are waiting in a sweep."""

from __future__ import annotations

import time

from ..errors import Unreachable
from ..follow import Follower
from ..history.run_folders import make_folder
from ..history.store import History
from ..hosts.unattached import UnattachedHost
from ..inferred_state import INTERRUPTED, waits_for_turn
from ..model import IN_CONTACT, Run
from ..targets.target import Target
from .submission_frontend import Frontend
from .submitting import launch_run


def ask_to_end(history: History, follower: Follower, by: str, grace: float | None, frontend: Frontend) -> None:
    """Ask the target to end the run.

    ``by``: who requests it; ``grace``: seconds between SIGTERM and SIGKILL.
    """
    run = follower.run
    if run.contact != IN_CONTACT:
        raise Unreachable(
            f"cannot cancel run {run.id}: {run.contact}",
            _attach_first(follower) + f"if the machine no longer exists, run 'mlw cancel --forget {run.id}'",
        )
    make_folder(history.paths.root, run.spec)  # an interrupted submit may not have created it
    _cancel(run, follower.target, by, grace)
    follower.refresh()
    _record_end(history, follower, frontend)


def await_end(history: History, follower: Follower, frontend: Frontend, until: float | None = None) -> None:
    """Wait until a run that is being canceled has ended, or until the monotonic time ``until``."""
    while not follower.run.status.final and (until is None or time.monotonic() < until):
        for _ in follower.chunks(until=until):
            continue
        _record_end(history, follower, frontend)  # needed if the submitting process has died


def _cancel(run: Run, target: Target, by: str, grace: float | None) -> None:
    """Cancel the run. If its machine may lack the spec, send the spec, so that the run never starts there."""
    if run.accepted is not None or not target.host.is_remote:
        target.cancel(run.id, by, grace)
    else:
        target.cancel(run.id, by, grace, {"spec": run.spec.to_json()})


def _record_end(history: History, follower: Follower, frontend: Frontend) -> None:
    """Launch an unclaimed run; its supervisor only records that the run was canceled."""
    if follower.run.detail == INTERRUPTED or waits_for_turn(follower.run):
        follower.run = launch_run(history, follower.run.spec, follower.target, {}, frontend)


def _attach_first(follower: Follower) -> str:
    if not isinstance(follower.target.host, UnattachedHost):
        return ""
    from ..targets.open_remote import attach_command  # noqa: PLC0415 - most runs are of machines that answer

    return f"attach it again: {attach_command(follower.run.spec.compute, follower.target.type)}; "
