"""Attempts of a run for display. The last attempt decides how the run ended."""

from __future__ import annotations

from typing import Any

from ..model import JsonDict, Run
from ..remote.shared import run_endings
from ..sanitize import plain
from . import units
from .value_format import finite

_MAX_CAUSE = 300


def attempt_records(run: Run) -> list[dict[str, Any]]:
    """Return the attempts before the last one, for programs."""
    return [{key: finite(value) for key, value in attempt.items()} for attempt in run.attempts]


def attempt_count(run: Run) -> str | None:
    """Return the number of attempts, such as ``2 of 4``, or None for a run that starts only once."""
    if run.spec.retries is None:
        return None
    return f"{len(run.attempts) + 1} of {run.spec.retries.limit + 1}"


def describe_attempt(attempt: JsonDict) -> str:
    """Return one line, such as ``attempt 1 failed (exit 3) after 12 s: ValueError: …``."""
    cause = plain(str(attempt.get("cause") or ""), _MAX_CAUSE)
    return f"attempt {attempt.get('number')} {_outcome(attempt)}" + (f": {cause}" if cause else "")


def attempt_pairs(run: Run) -> list[tuple[str, str]]:
    """Return the lines for a page: the count, then each earlier attempt."""
    count = attempt_count(run)
    if count is None:
        return []
    return [("Attempts", count), *(("", describe_attempt(attempt)) for attempt in run.attempts)]


def _outcome(attempt: JsonDict) -> str:
    ending, code, signal = attempt.get("ending"), attempt.get("exit"), attempt.get("signal")
    text = "ended: " + plain(str(ending))
    if ending == run_endings.FAILED:
        text = f"failed (signal {signal})" if signal is not None else f"failed (exit {code})"
    started, ended = attempt.get("started"), attempt.get("ended")
    if isinstance(started, float) and isinstance(ended, float):
        text += f" after {units.duration(max(0.0, ended - started))}"
    return text
