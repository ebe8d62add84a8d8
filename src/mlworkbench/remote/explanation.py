"""Explain why the script failed: from the record of a rank, or from the end of the log."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from .run_spec import Spec
    from .shared.failure import Reason
    from .shared.layout import RunFolder


def failed_rank(run: RunFolder, spec: Spec, result: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Return the record of the rank that failed first, if a launcher started several and failed."""
    if not spec.get("processes") or result["code"] == 0:
        return None
    from .ranks import first_failure, read_ranks  # noqa: PLC0415 - only for several processes

    return first_failure(read_ranks(run))


def describe_ranks(run: RunFolder, spec: Spec) -> Dict[str, Any]:
    """Return the event key that lists the ranks of an attempt and how they ended."""
    if not spec.get("processes"):
        return {}
    from .ranks import list_endings, read_ranks  # noqa: PLC0415 - only for several processes

    return {"ranks": list_endings(read_ranks(run))}


def explain(
    run: RunFolder,
    spec: Spec,
    result: Dict[str, Any],
    rank: Optional[Dict[str, Any]],
    mask: Callable[[str], str],
    log_start: int,
) -> Reason:
    """Explain a failure. ``mask`` hides secrets; the log before ``log_start`` belongs to earlier attempts."""
    if rank is not None:
        from .ranks import explain_rank  # noqa: PLC0415 - only for several processes

        return explain_rank(rank, spec, run.work, mask)
    from .failure_cause import explain_failure, read_tail  # noqa: PLC0415 - only for failed runs

    python = (spec.get("processes") or {}).get("python") or spec["commands"][-1]["argv"][0]
    text = mask(read_tail(run.log, start=log_start))
    return explain_failure(text, run.work, python, result["code"], result["signal"], spec.get("unpassed") or ())
