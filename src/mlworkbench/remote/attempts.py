"""Attempts of a run: which one is the newest, and whether another one follows.

The supervisor that watched an attempt end starts the next one. Nothing else does: a process that only
asks for the state of a run, or takes over after all processes of an attempt have ended, never does.
"""

from __future__ import annotations

import os
import time

from .claim import Superseded, claim
from .pending_ending import retry_until_written
from .shared.retry_causes import MAX_DELAY, retry_cause

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from .run_spec import Spec
    from .shared.layout import RunFolder
    from .supervisor import Supervisor


def newest_attempt(run: RunFolder) -> RunFolder:
    """Return the paths of the newest claimed attempt."""
    try:
        numbers = [int(name) for name in os.listdir(run.attempts) if name.isdigit() and len(name) < 5]
    except OSError:
        return run.at(1)  # most runs have only one attempt
    claimed = [number for number in numbers if number > 1 and os.path.exists(run.at(number).owner)]
    return run.at(max(claimed, default=1))


def claim_attempt(run: RunFolder) -> bool:
    """Claim an attempt after the first, and retry while writes fail. Return whether this claim succeeded."""
    nonce = os.urandom(8).hex()
    results: List[bool] = []
    return retry_until_written(run, lambda: results.append(claim(run, nonce)), "the claim") and results[0]


def retry_delay(spec: Spec, attempt: int, ended: Dict[str, Any]) -> Optional[float]:
    """Return the seconds until the next attempt, or None if the run does not request one for this ending."""
    retries = spec.get("retries")
    if not retries or attempt > retries["limit"]:
        return None
    if retry_cause(ended["ending"], ended["exit"], ended["cause"]) not in retries["causes"]:
        return None
    return float(min(MAX_DELAY, retries["delay"] * 2.0 ** (attempt - 1)))


def wait_for_attempt(
    seconds: float, is_canceled: Callable[[], bool], beat: Callable[[], None], interval: float
) -> bool:
    """Wait before an attempt. Return whether it may start, or False if the run was canceled."""
    start_at = time.monotonic() + seconds
    while not is_canceled():
        beat()
        remaining = start_at - time.monotonic()
        if remaining <= 0:
            return True
        time.sleep(min(interval, remaining))
    return False


def canceled_early(attempt: int) -> str:
    """Return why an attempt that was canceled before its script started never starts."""
    return "canceled before it started" if attempt == 1 else "canceled before attempt %d started" % attempt


def died_early(attempt: int) -> str:
    """Return why an attempt whose supervisor died before its script started never starts."""
    if attempt == 1:
        return "the supervisor died before the script started"
    return (
        "the supervisor died before attempt %d started; only a supervisor that is alive starts another attempt"
        % attempt
    )


def with_attempt(spec: Spec, run: RunFolder) -> Spec:
    """Return the spec with the number of the attempt in the script's environment, and with the attempt's folder."""
    if run.attempt == 1:
        return spec  # the client has set it
    copy = spec.copy()
    copy["environment"] = dict(spec["environment"], MLW_ATTEMPT=str(run.attempt))
    container = spec.get("container")
    if container:
        first = run.at(1).ranks
        mounts = [[run.ranks, run.ranks, "rw"] if mount[0] == first else mount for mount in container["mounts"]]
        copy["container"] = dict(container, mounts=mounts)
    return copy


def supervise_attempts(supervisor: Supervisor, begin: Callable[[], None]) -> None:
    """Supervise an attempt that ``begin`` starts or takes over, and each attempt that follows it."""
    try:
        begin()
        while supervisor.next_attempt is not None:
            supervisor = supervisor.next_attempt
            supervisor.begin_again()
    except Superseded:
        supervisor.abandon()
