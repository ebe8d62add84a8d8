"""Run states that no event records: the client infers them from an unresponsive target or a sweep."""

from __future__ import annotations

import time
from dataclasses import replace

from .failure import Failure
from .model import IN_CONTACT, Run, Status
from .remote.shared import run_endings

INTERRUPTED = "interrupted"  # the submission stopped before a supervisor claimed the run
UNWRITTEN = "ended; result not saved yet"  # the target cannot write to its disk


def is_unwritten(run: Run) -> bool:
    """Return whether the run has ended but its machine cannot save the result."""
    return run.unwritten is not None and run.detail == run.unwritten


def in_sweep(run: Run) -> bool:
    """Return whether the run belongs to a sweep."""
    return run.spec.parent is not None and not run.spec.inside


def has_started(run: Run) -> bool:
    """Return whether a supervisor has accepted the run, or a scheduler has its job."""
    return run.accepted is not None or run.job is not None


def waits_for_turn(run: Run) -> bool:
    """Return whether the run is waiting for its turn in a sweep."""
    return in_sweep(run) and run.status is Status.QUEUED and not has_started(run)


def wait_for_turn(run: Run) -> Run:
    """Mark the run as waiting, unless a supervisor has claimed it in the meantime."""
    if run.accepted or run.status.final:
        return run
    return replace(run, status=Status.QUEUED, detail=f"waiting for its turn in {run.spec.parent}")


def left_out(run: Run) -> Run:
    """Mark a child as canceled, because its sweep ended without starting it or recording why.

    This happens on a full disk, for example.
    """
    if run.accepted or run.status.final:
        return run
    return _ended(run, Status.CANCELED, run_endings.CANCELLED, f"sweep {run.spec.parent} ended before this run started")


def out_of_contact(run: Run, why: str, attached: bool = True) -> Run:
    """Record that the machine does not respond.

    The time of the first failure is kept, and so is its reason while the machine stays attached.
    """
    previous = run.no_contact
    if previous and previous["attached"] and attached:
        return run
    since = previous["since"] if previous else time.strftime("%Y-%m-%d %H:%M:%S")
    lost = {"since": since, "why": why, "attached": attached}
    return replace(run, contact=f"no contact since {since} ({why})", no_contact=lost)


def in_contact(run: Run) -> Run:
    """Record that the machine responds again."""
    return replace(run, contact=IN_CONTACT, no_contact=None)


def interrupted(run: Run, detail: str | None) -> Run:
    """Set the detail to INTERRUPTED or None, unless a supervisor has claimed the run in the meantime."""
    return run if run.accepted or run.status.final else replace(run, detail=detail)


def forget(run: Run) -> Run:
    """Mark the run as lost, because the user confirmed that its machine no longer exists."""
    cause = "marked as lost by the user: its machine no longer exists"
    return in_contact(lost(run, cause))


def lost(run: Run, cause: str = "the run's folder is gone") -> Run:
    return run if run.status.final else _ended(run, Status.FAILED, run_endings.TARGET_LOST, cause)


def _ended(run: Run, status: Status, ending: str, cause: str) -> Run:
    failure = Failure.from_json(run_endings.failure_of(ending, cause))
    return replace(run, status=status, detail=None, ending=ending, cause=cause, failure=failure, ended=time.time())
