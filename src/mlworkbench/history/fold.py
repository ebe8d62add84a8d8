"""How events become a Run. No other code computes a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ..model import Event, JsonDict, Run, Status
from ..remote import endings

_STATUS = {
    endings.SUCCEEDED: Status.COMPLETED,
    endings.CANCELLED: Status.CANCELED,
    endings.CANCELLED_FORCED: Status.CANCELED,
}


def fold(run: Run, events: Iterable[Event]) -> Run:
    """The run after the events; unknown kinds (of a newer supervisor) change nothing."""
    for event in events:
        step = _STEPS.get(event.kind)
        if step and not run.status.final:
            run = step(run, event)
    return run


def _accepted(run: Run, event: Event) -> Run:
    return replace(run, status=Status.PREPARING, detail=None, accepted=event.time)


def _step(run: Run, event: Event) -> Run:
    return replace(run, status=Status.PREPARING, detail=_text(event.data.get("step")))


def _queued(run: Run, event: Event) -> Run:
    return replace(run, status=Status.QUEUED, detail=_text(event.data.get("reason")))


def _started(run: Run, event: Event) -> Run:
    return replace(run, status=Status.RUNNING, detail=None, started=_number(event.data.get("time"), event.time))


def _stopping(run: Run, event: Event) -> Run:
    why = {"cancel": "being cancelled", "timeout": "over its time limit, being stopped"}
    detail = why.get(str(event.data.get("why")), "being stopped")
    stuck = _pids(event.data.get("stuck"))
    if stuck:
        detail += f"; will not die: process {', '.join(str(pid) for pid in stuck)}"
    return replace(run, detail=detail)


def _collecting(run: Run, event: Event) -> Run:
    return replace(run, detail="collecting outputs")


def _finished(run: Run, event: Event) -> Run:
    data = event.data
    ending = data["ending"] if data.get("ending") in endings.ALL else endings.EXIT_UNKNOWN
    elapsed = data.get("elapsed")
    ended = _number(data.get("ended"), event.time)
    if run.started is not None and isinstance(elapsed, (int, float)) and 0 <= elapsed < 1e11:
        # The target's monotonic clock: right also when its wall clock was set meanwhile.
        ended = run.started + elapsed
    return replace(
        run,
        status=_STATUS.get(ending, Status.FAILED),
        detail=None,
        ending=ending,
        exit=_whole(data.get("exit")),
        signal=_whole(data.get("signal")),
        cause=_text(data.get("cause")),
        ended=ended,
        outputs=_whole(data.get("outputs")),
        output_bytes=_whole(data.get("output_bytes")),
        log_size=_whole(data.get("log_size")),
        leftovers=_pids(data.get("leftovers")),
    )


_STEPS: dict[str, Callable[[Run, Event], Run]] = {
    "accepted": _accepted,
    "step": _step,
    "queued": _queued,
    "started": _started,
    "stopping": _stopping,
    "collecting": _collecting,
    "finished": _finished,
}


def ending_words(run: Run) -> str | None:
    """The ending with its number, for people: ``failed (exit 3)``."""
    if run.ending != endings.FAILED:
        return run.ending
    return f"failed (signal {run.signal})" if run.signal is not None else f"failed (exit {run.exit})"


def event_from(data: JsonDict) -> Event:
    """One line of a journal as a value; raises ValueError, KeyError or TypeError if it is none."""
    if not isinstance(data["data"], dict):
        raise TypeError("data must be a mapping")
    return Event(str(data["w"]), int(data["seq"]), _number(data["t"], 0.0), str(data["kind"]), data["data"])


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _pids(value: Any) -> tuple[int, ...]:
    return tuple(pid for pid in value if isinstance(pid, int)) if isinstance(value, list) else ()


def _number(value: Any, otherwise: float) -> float:
    """A moment, if it can be one: seconds since 1970, before the year 5000."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e11 else otherwise
