"""States of a run that no event records: what the client concludes from the silence of a target, or from a sweep."""

from __future__ import annotations

import time
from dataclasses import replace

from .failure import Failure
from .model import IN_CONTACT, Run, Status
from .remote.shared import endings

INTERRUPTED = "interrupted"  # recorded, but the submit died before anybody took the run on
UNWRITTEN = "ended; result not saved yet"  # the disk of the target refuses it
_FORMER_UNWRITTEN = (
    "ended; its result is not written yet",
    "ended; its ending waits to be written",
)  # of older versions


def is_unwritten(run: Run) -> bool:
    """Whether it is over, and its machine cannot write how it ended."""
    return (run.detail or "").startswith((UNWRITTEN, *_FORMER_UNWRITTEN))


def in_sweep(run: Run) -> bool:
    """Whether its turn in a sweep must come before it starts."""
    return run.spec.parent is not None and not run.spec.inside


def waits_for_turn(run: Run) -> bool:
    """Whether it is known to wait in a sweep."""
    return in_sweep(run) and run.status is Status.QUEUED and run.accepted is None


def wait_for_turn(run: Run) -> Run:
    """Unless a supervisor has taken it on since we looked."""
    if run.accepted or run.status.final:
        return run
    return replace(run, status=Status.QUEUED, detail=f"waiting for its turn in {run.spec.parent}")


def left_out(run: Run) -> Run:
    """The sweep has ended and could not tell of it: its disk was full, or its folder is gone."""
    if run.accepted or run.status.final:
        return run
    return _ended(run, Status.CANCELED, endings.CANCELLED, f"sweep {run.spec.parent} ended before this run started")


def out_of_contact(run: Run, why: str, attached: bool = True) -> Run:
    """Whoever noticed first knows since when, and why; but what is attached now and what is not is told anew."""
    known = run.no_contact
    if known and known["attached"] and attached:
        return run
    since = known["since"] if known else time.strftime("%Y-%m-%d %H:%M:%S")
    lost = {"since": since, "why": why, "attached": attached}
    return replace(run, contact=f"no contact since {since} ({why})", no_contact=lost)


def in_contact(run: Run) -> Run:
    """Its machine answers again."""
    return replace(run, contact=IN_CONTACT, no_contact=None)


def interrupted(run: Run, detail: str | None) -> Run:
    """Unless a supervisor has taken it on since we looked."""
    return run if run.accepted or run.status.final else replace(run, detail=detail)


def forget(run: Run) -> Run:
    """On the user's word: the machine that could tell is gone for good."""
    cause = "marked as lost by the user: its machine no longer exists"
    return in_contact(lost(run, cause))


def lost(run: Run, cause: str = "the run's folder is gone") -> Run:
    return run if run.status.final else _ended(run, Status.FAILED, endings.TARGET_LOST, cause)


def _ended(run: Run, status: Status, ending: str, cause: str) -> Run:
    failure = Failure.from_json(endings.failure_of(ending, cause))
    return replace(run, status=status, detail=None, ending=ending, cause=cause, failure=failure, ended=time.time())
