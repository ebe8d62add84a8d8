"""Decide how a run ended, and explain why the script failed: from the record of a rank, or from the end of the log."""

from __future__ import annotations

from .allocation import SCHEDULER, current
from .shared import machine, run_endings
from .shared.atomic_files import read_json
from .shared.failure import extend_message
from .sweep_log import is_disk_full

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from .run_spec import Spec
    from .shared.failure import Reason
    from .shared.layout import RunFolder
    from .stopping import Stopping

_OOM_ELSEWHERE = "; meanwhile the kernel killed a process on this machine because memory ran out"


class Outcome:
    """How a run ended. ``result`` is the exit status, of the rank that failed first if there are several."""

    def __init__(self, run: RunFolder, spec: Spec, result: Dict[str, Any]) -> None:
        self.ending = run_endings.EXIT_UNKNOWN
        self.reason: Optional[Reason] = None
        self.rank = failed_rank(run, spec, result)
        if self.rank is not None and self.rank["ended"] is not None:  # the launcher's own exit code is always the same
            result = dict(result, code=self.rank["code"], signal=self.rank["signal"])
        self.result = result
        self.oom = False
        self._run = run
        self._spec = spec

    def explain_failure(self, mask: Callable[[str], str], log_start: int) -> Reason:
        return explain(self._run, self._spec, self.result, self.rank, mask, log_start)

    def extend(self, reason: Optional[Reason]) -> Optional[Reason]:
        """Add what may have caused a failure elsewhere."""
        if self.ending != run_endings.FAILED or not reason:
            return reason
        if is_disk_full(self._run.path):
            reason = extend_message(reason, "; the disk that holds %s is full" % self._run.path)
        return extend_message(reason, _OOM_ELSEWHERE) if self.oom else reason


def decide_ending(
    run: RunFolder, spec: Spec, stopping: Stopping, facts: Optional[Dict[str, Any]], result: Dict[str, Any]
) -> Optional[Outcome]:
    """Decide how a run ended. Return None if it did not end: the scheduler starts it again, or says more later."""
    outcome = Outcome(run, spec, result)
    kills, kills_before = machine.oom_kills(), facts.get("oom_kills") if facts else None
    outcome.oom = kills is not None and kills_before is not None and kills > kills_before
    outcome.oom = outcome.oom and _is_same_machine(run)
    stop = stopping.reason(facts, result)
    if stop == SCHEDULER:
        interruption = current().interruption()
        if interruption is None:
            return None
        outcome.ending, outcome.reason = interruption
        return outcome
    outcome.ending, outcome.reason = run_endings.decide(outcome.result, stop, stopping.forced, outcome.oom)
    if outcome.ending == run_endings.TIMEOUT:
        limit = spec.get("timeout")
        reason = current().limit_reason() if limit is None else "stopped after the time limit of %g s" % limit
        outcome.reason = reason
    elif stop == "cancel" and not result.get("unstarted"):
        outcome.reason = "canceled by %s" % ((read_json(run.cancel) or {}).get("by") or "an unknown user")
    return outcome


def is_own_end(result: Dict[str, Any], why: Optional[str], ending: str) -> bool:
    """Return whether an exit status explains the end of a run. ``ending``: what the scheduler reports about its job.

    A script that the scheduler stops may exit with any status.
    """
    if why == SCHEDULER:
        return False
    return result["signal"] is None or why is not None or ending == run_endings.EXIT_UNKNOWN


def _is_same_machine(run: RunFolder) -> bool:
    """Return whether the supervisor that claimed the run is or was on this machine, since its last boot."""
    return (read_json(run.owner) or {}).get("boot_id") in (None, machine.identity()["boot_id"])


def failed_rank(run: RunFolder, spec: Spec, result: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Return the record of the rank that failed first, if a launcher started several and failed."""
    if not spec.get("processes") or result["code"] == 0:
        return None
    from .ranks import first_failure, read_ranks  # noqa: PLC0415 - only for several processes

    ended = result.get("ended")
    return first_failure(read_ranks(run), ended if isinstance(ended, (int, float)) else None)


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
    if spec.get("processes"):
        from .ranks import explain_missing_launcher  # noqa: PLC0415 - only for several processes

        missing = explain_missing_launcher(text, spec)
        if missing is not None:
            return missing
    return explain_failure(text, run.work, python, result["code"], result["signal"], spec.get("unpassed") or ())
