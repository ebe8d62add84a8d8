"""Which text of ``explain`` speaks of what befell a run: found by the words of its cause, also an old target's."""

from __future__ import annotations

from typing import Any

from ..explain import symptom_of
from ..model import Run
from ..remote import endings

# A script may say anything in its own words; only Python's, and what we have added to them, count.
_OF_SCRIPTS = ("python",)
_OF_STARTS = ("python", "packages", "containers", "gpu", "history", "tools")
_ENDINGS = {
    endings.OUT_OF_MEMORY: "out-of-memory",
    endings.ENVIRONMENT_FAILED: "environment-failed",
    endings.COULD_NOT_START: "could-not-start",
    endings.TARGET_REBOOTED: "run-lost",
    endings.TARGET_RESTARTED: "run-lost",
    endings.TARGET_LOST: "run-lost",
    endings.ENGINE_STOPPED: "run-lost",
    endings.EXIT_UNKNOWN: "run-lost",
}


def of_run(run: Run) -> str | None:
    """Of how it ended; None if that needs no more words."""
    cause = (run.cause or "").partition("; hint: ")[0]
    if run.ending == endings.FAILED:
        return symptom_of(cause, _OF_SCRIPTS) if cause else None
    otherwise = _ENDINGS.get(run.ending or "")
    if run.ending in (endings.ENVIRONMENT_FAILED, endings.COULD_NOT_START) and cause:
        return symptom_of(cause, _OF_STARTS) or otherwise
    return otherwise


def of_gpu(gpu: dict[str, Any] | None) -> str | None:
    """Of a verdict that names a remedy."""
    told = (gpu or {}).get("diagnosis")
    if not isinstance(told, dict) or not told.get("remedy"):
        return None
    return symptom_of(str(told.get("cause")), ("gpu", "containers")) or "gpu-not-used"


def line(name: str | None) -> list[tuple[str, str]]:
    """As it stands below a remedy."""
    return [("More", f"mlw explain {name}")] if name else []
