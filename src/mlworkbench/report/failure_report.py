"""The failure of a run and the page that explains it, including runs from earlier mlw versions.

Those versions recorded text only. The functions in the last section are the only ones that parse
mlw's messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..explain import symptom_of
from ..failure import Failure
from ..model import Run
from ..remote.shared import run_endings
from ..remote.shared.failure import HINT
from ..remote.shared.network_errors import NOT_FETCHED

# A script may print anything, so only messages from Python and additions by mlw are matched.
_SCRIPT_TOPICS = ("python",)
_START_TOPICS = ("python", "packages", "containers", "gpu", "history", "tools")
_START_ENDINGS = (run_endings.ENVIRONMENT_FAILED, run_endings.COULD_NOT_START)


def failure_of(run: Run) -> Failure | None:
    """Return the failure of a run, or None if it has not ended or did not fail."""
    return run.failure or _failure_from_text(run)


def page_of(run: Run) -> str | None:
    """Return the ``mlw explain`` page for the ending, or None if it needs no explanation."""
    failure = failure_of(run)
    return failure.explain if failure else None


def gpu_page(gpu: Mapping[str, Any] | None) -> str | None:
    """Return the ``mlw explain`` page for a GPU verdict with a remedy, or None."""
    diagnosis = (gpu or {}).get("diagnosis")
    if not isinstance(diagnosis, dict) or not diagnosis.get("remedy"):
        return None
    failure = Failure.from_json({"code": "gpu", "message": "", "explain": diagnosis.get("explain")})
    return (failure and failure.explain) or _page_from_diagnosis(diagnosis)


def gpu_summary(gpu: Mapping[str, Any]) -> str | None:
    """Return the figures and reasons of a GPU verdict: ``NVIDIA A100, 93 % of the time``."""
    summary = gpu["summary"] if "summary" in gpu else _summary_from_line(gpu)
    return str(summary) if summary else None


def page_line(page: str | None) -> list[tuple[str, str]]:
    """Return a line that refers to the page, to be shown after a remedy."""
    return [("More", f"mlw explain {page}")] if page else []


# -- runs of earlier versions ------------------------------------------------------------------------------


def _failure_from_text(run: Run) -> Failure | None:
    """Return the failure based on the cause that a supervisor of an earlier version recorded."""
    failure = Failure.from_json(run_endings.failure_of(run.ending or "", None))
    if failure is None:
        return None
    message, _, hint = (run.cause or "").partition(HINT)
    code, page = failure.code, failure.explain
    if run.ending in _START_ENDINGS:
        page = symptom_of(message, _START_TOPICS) or page
        code = NOT_FETCHED if run.ending == run_endings.ENVIRONMENT_FAILED and " cannot be fetched" in message else code
    elif run.ending == run_endings.FAILED:
        page = symptom_of(message, _SCRIPT_TOPICS)
    return Failure(code, message or failure.message, hint or None, page)


def _page_from_diagnosis(diagnosis: Mapping[str, Any]) -> str:
    return symptom_of(str(diagnosis.get("cause")), ("gpu", "containers")) or "gpu-not-used"


def _summary_from_line(gpu: Mapping[str, Any]) -> str:
    """Return the part after the dash in ``GPU used: yes – NVIDIA A100, …``."""
    return str(gpu.get("line") or "").partition(" – ")[2]
