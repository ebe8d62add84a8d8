"""The ways in which a run can end, and how an ending is derived from the evidence."""

from __future__ import annotations

from .failure import failure, parse_failure, text_of

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from .failure import Failure, Reason


SUCCEEDED = "succeeded"
FAILED = "failed"
OUT_OF_MEMORY = "out of memory"
TIMEOUT = "timeout"
CANCELLED = "cancelled"
CANCELLED_FORCED = "cancelled (forced)"
ENVIRONMENT_FAILED = "environment failed"
COULD_NOT_START = "could not start"
TARGET_REBOOTED = "target rebooted"
TARGET_RESTARTED = "target restarted"
TARGET_LOST = "target lost the run"
ENGINE_STOPPED = "engine stopped it"
NODE_FAILURE = "node failure"
PREEMPTED = "preempted"
REQUEUED = "requeued"  # of an attempt only: a new one follows
EXIT_UNKNOWN = "exit unknown"

ALL = (
    SUCCEEDED,
    FAILED,
    OUT_OF_MEMORY,
    TIMEOUT,
    CANCELLED,
    CANCELLED_FORCED,
    ENVIRONMENT_FAILED,
    COULD_NOT_START,
    TARGET_REBOOTED,
    TARGET_RESTARTED,
    TARGET_LOST,
    ENGINE_STOPPED,
    NODE_FAILURE,
    PREEMPTED,
    REQUEUED,
    EXIT_UNKNOWN,
)

# Failure code and ``mlw explain`` page for reasons that are plain text.
_FAILURES = {
    FAILED: ("script-failed", None),
    OUT_OF_MEMORY: ("out-of-memory", "out-of-memory"),
    TIMEOUT: ("timeout", None),
    CANCELLED: ("cancelled", None),
    CANCELLED_FORCED: ("cancelled", None),
    ENVIRONMENT_FAILED: ("environment-failed", "environment-failed"),
    COULD_NOT_START: ("could-not-start", "could-not-start"),
    TARGET_REBOOTED: ("target-rebooted", "run-lost"),
    TARGET_RESTARTED: ("target-restarted", "run-lost"),
    TARGET_LOST: ("run-lost", "run-lost"),
    ENGINE_STOPPED: ("engine-stopped", "run-lost"),
    NODE_FAILURE: ("node-failure", "run-lost"),
    PREEMPTED: ("preempted", None),
    REQUEUED: ("requeued", None),
    EXIT_UNKNOWN: ("exit-unknown", "run-lost"),
}

_SIGKILL = 9
_MAX_CODE, _MAX_SIGNAL = 255, 127


def parse_ending(data: Dict[str, Any]) -> Tuple[str, Optional[int], Optional[int]]:
    """Return the ending, exit code, and signal of a ``finished`` event.

    Impossible values make the ending unknown.
    """
    ending = data["ending"] if data.get("ending") in ALL else EXIT_UNKNOWN
    code, signal = data.get("exit"), data.get("signal")
    if not _is_within(code, 0, _MAX_CODE) or not _is_within(signal, 1, _MAX_SIGNAL):
        return (EXIT_UNKNOWN if ending in (SUCCEEDED, FAILED) else ending), None, None
    return ending, code, signal


def failure_of(ending: str, reason: Optional[Reason]) -> Optional[Failure]:
    """Return the failure for an ending, or None for a run that succeeded."""
    failure_data = parse_failure(reason)
    if failure_data or ending not in _FAILURES:
        return failure_data
    code, explain = _FAILURES[ending]
    return failure(code, str(reason or ending), None, explain)


def outcome(ending: str, reason: Optional[Reason]) -> Dict[str, Any]:
    """Return the event keys that describe how and why a run ended."""
    cause = None if reason is None else text_of(reason)
    return {"ending": ending, "cause": cause, "failure": failure_of(ending, reason)}


def _is_within(value: Any, minimum: int, maximum: int) -> bool:
    return value is None or (type(value) is int and minimum <= value <= maximum)


def decide(
    exit: Optional[Dict[str, Any]], stop: Optional[str], forced: bool, oom: bool
) -> Tuple[str, Optional[Reason]]:
    """Return the ending and its reason.

    ``exit`` is the status that the launcher wrote. ``stop`` is "cancel" or "timeout" if mlw signaled the run
    before it ended by itself. ``oom`` is whether the kernel killed a process for lack of memory during
    the run.

    For a container, ``exit`` has more keys. ``oom``: the container reached its own memory limit.
    ``limited``: the container has a memory limit, so OOM kills elsewhere are not evidence. ``stopped``:
    what ended the container, if not the script. ``unstarted``: the container was canceled before the
    script started. ``unknown``: why there is neither a code nor a signal.
    """
    oom = oom and not (exit and exit.get("limited"))
    if exit and exit.get("unstarted"):
        return CANCELLED, exit["problem"]
    if stop == "timeout":
        return TIMEOUT, None
    if stop == "cancel":
        return (CANCELLED_FORCED if forced else CANCELLED), None
    if exit and exit.get("oom"):
        return OUT_OF_MEMORY, _memory_limit_reason(exit)
    if exit and exit.get("stopped") and not (exit["signal"] == _SIGKILL and oom):
        return ENGINE_STOPPED, exit["stopped"]
    if exit is None or (exit["code"] is None and exit["signal"] is None and not exit.get("problem")):
        return EXIT_UNKNOWN, (exit or {}).get("unknown") or "no exit status was recorded"
    if exit.get("problem"):
        return COULD_NOT_START, parse_failure(exit.get("failure")) or exit["problem"]
    if exit["signal"] == _SIGKILL and oom:
        return OUT_OF_MEMORY, "the kernel killed the process because memory ran out"
    if exit["signal"] is not None or exit["code"] != 0:
        return FAILED, None
    return SUCCEEDED, None


def _memory_limit_reason(exit: Dict[str, Any]) -> str:
    """Explain that the memory limit was reached. The main process may survive when a child is killed."""
    if exit["code"] is not None:
        text = "the kernel killed a process at the container's memory limit; the script then ended with exit"
        return text + " code %d, so its results may be incomplete" % exit["code"]
    return "the container reached its memory limit, and the kernel killed the script"
