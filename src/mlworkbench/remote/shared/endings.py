"""How a run may end, and the one place where the ending is decided from the evidence."""

from __future__ import annotations

from .failure import checked, failure, text_of

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
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
    EXIT_UNKNOWN,
)

# Code of the failure, and its page of ``mlw explain``, where the reason is only a text.
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
    EXIT_UNKNOWN: ("exit-unknown", "run-lost"),
}

_SIGKILL = 9
_LARGEST_CODE, _LARGEST_SIGNAL = 255, 127


def told(data: Dict[str, Any]) -> Tuple[str, Optional[int], Optional[int]]:
    """Ending, exit code, and signal of a ``finished`` event. What no process can have makes the ending unknown."""
    ending = data["ending"] if data.get("ending") in ALL else EXIT_UNKNOWN
    code, signal = data.get("exit"), data.get("signal")
    if not _is_within(code, 0, _LARGEST_CODE) or not _is_within(signal, 1, _LARGEST_SIGNAL):
        return (EXIT_UNKNOWN if ending in (SUCCEEDED, FAILED) else ending), None, None
    return ending, code, signal


def failure_of(ending: str, reason: Optional[Reason]) -> Optional[Failure]:
    """The failure that an ending is; None for a run that succeeded."""
    known = checked(reason)
    if known or ending not in _FAILURES:
        return known
    code, page = _FAILURES[ending]
    return failure(code, str(reason or ending), None, page)


def outcome(ending: str, reason: Optional[Reason]) -> Dict[str, Any]:
    """The keys of an event that say how a run ended, and why."""
    cause = None if reason is None else text_of(reason)
    return {"ending": ending, "cause": cause, "failure": failure_of(ending, reason)}


def _is_within(value: Any, least: int, most: int) -> bool:
    return value is None or (type(value) is int and least <= value <= most)


def decide(
    exit: Optional[Dict[str, Any]], stop: Optional[str], forced: bool, oom: bool
) -> Tuple[str, Optional[Reason]]:
    """The ending and its reason.

    ``exit`` is what the launcher wrote, ``stop`` is "cancel" or "timeout" if a signal of ours reached the run
    before it ended by itself, ``oom`` whether the kernel killed for want of memory meanwhile.

    For a container ``exit`` also says: ``oom``, its own limit did; ``limited``, it has one, and so what the kernel
    killed elsewhere is no evidence; ``stopped``, who ended it if not the script; ``unstarted``, a cancel came before
    the script had its word. ``unknown`` is why there is neither code nor signal.
    """
    oom = oom and not (exit and exit.get("limited"))
    if exit and exit.get("unstarted"):
        return CANCELLED, exit["problem"]
    if stop == "timeout":
        return TIMEOUT, None
    if stop == "cancel":
        return (CANCELLED_FORCED if forced else CANCELLED), None
    if exit and exit.get("oom"):
        return OUT_OF_MEMORY, _beyond_limit(exit)
    if exit and exit.get("stopped") and not (exit["signal"] == _SIGKILL and oom):
        return ENGINE_STOPPED, exit["stopped"]
    if exit is None or (exit["code"] is None and exit["signal"] is None and not exit.get("problem")):
        return EXIT_UNKNOWN, (exit or {}).get("unknown") or "no exit status was recorded"
    if exit.get("problem"):
        return COULD_NOT_START, checked(exit.get("failure")) or exit["problem"]
    if exit["signal"] == _SIGKILL and oom:
        return OUT_OF_MEMORY, "the kernel killed the process because memory ran out"
    if exit["signal"] is not None or exit["code"] != 0:
        return FAILED, None
    return SUCCEEDED, None


def _beyond_limit(exit: Dict[str, Any]) -> str:
    """The main process may have lived on when the kernel took one of its children."""
    if exit["code"] is not None:
        words = "the kernel killed a process at the container's memory limit; the script then ended with exit"
        return words + " code %d, so its results may be incomplete" % exit["code"]
    return "the container reached its memory limit, and the kernel killed the script"
