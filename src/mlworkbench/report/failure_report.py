"""Why a run failed and what to read about it; also of runs that earlier versions of mlw ended.

Those versions recorded a text only. ``_from_former_text`` and ``_from_former_gpu`` are the only functions that read
texts of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..explain import symptom_of
from ..failure import Failure
from ..model import Run
from ..remote.shared import endings
from ..remote.shared.failure import HINT
from ..remote.shared.network_errors import NOT_FETCHED

# A script may print anything; only Python's messages, and what we have added to them, count.
_OF_SCRIPTS = ("python",)
_OF_STARTS = ("python", "packages", "containers", "gpu", "history", "tools")
_STARTS = (endings.ENVIRONMENT_FAILED, endings.COULD_NOT_START)


def failure_of(run: Run) -> Failure | None:
    """None for a run that has not ended, or has not failed."""
    return run.failure or _from_former_text(run)


def page_of(run: Run) -> str | None:
    """The page of ``mlw explain`` about how it ended; None if that needs no explanation."""
    failure = failure_of(run)
    return failure.explain if failure else None


def gpu_page(gpu: Mapping[str, Any] | None) -> str | None:
    """The page about a GPU verdict that names a remedy."""
    diagnosis = (gpu or {}).get("diagnosis")
    if not isinstance(diagnosis, dict) or not diagnosis.get("remedy"):
        return None
    known = Failure.from_json({"code": "gpu", "message": "", "explain": diagnosis.get("explain")})
    return (known and known.explain) or _from_former_gpu(diagnosis)


def gpu_summary(gpu: Mapping[str, Any]) -> str | None:
    """The figures and reasons behind a GPU verdict: ``NVIDIA A100, 93 % of the time``."""
    summary = gpu["summary"] if "summary" in gpu else _from_former_gpu_line(gpu)
    return str(summary) if summary else None


def page_line(page: str | None) -> list[tuple[str, str]]:
    """As it stands below a remedy."""
    return [("More", f"mlw explain {page}")] if page else []


# -- runs of earlier versions ------------------------------------------------------------------------------


def _from_former_text(run: Run) -> Failure | None:
    """The failure in the cause that a supervisor of an earlier version wrote."""
    known = Failure.from_json(endings.failure_of(run.ending or "", None))
    if known is None:
        return None
    message, _, hint = (run.cause or "").partition(HINT)
    code, page = known.code, known.explain
    if run.ending in _STARTS:
        page = symptom_of(message, _OF_STARTS) or page
        code = NOT_FETCHED if run.ending == endings.ENVIRONMENT_FAILED and " cannot be fetched" in message else code
    elif run.ending == endings.FAILED:
        page = symptom_of(message, _OF_SCRIPTS)
    return Failure(code, message or known.message, hint or None, page)


def _from_former_gpu(diagnosis: Mapping[str, Any]) -> str:
    return symptom_of(str(diagnosis.get("cause")), ("gpu", "containers")) or "gpu-not-used"


def _from_former_gpu_line(gpu: Mapping[str, Any]) -> str:
    """``GPU used: yes – NVIDIA A100, …``."""
    return str(gpu.get("line") or "").partition(" – ")[2]
