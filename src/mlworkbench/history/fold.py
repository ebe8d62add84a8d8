"""How events become a Run. No other code computes a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from math import isfinite
from typing import Any

from ..failure import Failure
from ..model import Event, JsonDict, Run, Status
from ..remote.shared import endings
from ..remote.shared.events import check_seq

_STATUS = {
    endings.SUCCEEDED: Status.COMPLETED,
    endings.CANCELLED: Status.CANCELED,
    endings.CANCELLED_FORCED: Status.CANCELED,
}

MOST_WRITERS = 64  # of events; a run has one, and newer versions may have a few
LONGEST_WRITER = 200
USED = ("yes", "partly", "no", "unknown")
_LONGEST, _MOST, _DEEPEST = 1000, 64, 6
_LONGEST_TEXT, _MOST_PIDS = 20_000, 10_000
_SPARK = ("app", "version", "master", "deploy", "ui", "history", "events")
_TROUBLE = ("number", "app", "what", "reason", "executor", "host", "stage", "name", "job")


def fold(run: Run, events: Iterable[Event]) -> Run:
    """The run after the events; unknown kinds (of a newer supervisor) change nothing."""
    for event in events:
        step = _STEPS.get(event.kind)
        if step and not run.status.final:
            run = step(run, event)
    return run


def leave_out(run: Run, lines: Iterable[str]) -> Run:
    """The run with these lines about what is not read of it."""
    merged = tuple(dict.fromkeys((*run.left_out, *lines)))[:_MOST]
    return run if merged == run.left_out else replace(run, left_out=merged)


def _accepted(run: Run, event: Event) -> Run:
    root = _text(tame(event.data.get("root")))
    return replace(run, status=Status.PREPARING, detail=None, accepted=event.time, root=root or run.root)


def _step(run: Run, event: Event) -> Run:
    return replace(run, status=Status.PREPARING, detail=_text(event.data.get("step")))


def _queued(run: Run, event: Event) -> Run:
    return replace(run, status=Status.QUEUED, detail=_text(event.data.get("reason")))


def _gpus(run: Run, event: Event) -> Run:
    """The GPUs that it got, or sees; a run that waited for them is about to start."""
    data = event.data
    gpus = data["gpus"][:_MOST] if isinstance(data.get("gpus"), list) else []
    told: JsonDict = {"gpus": [_gpu(one) for one in gpus if isinstance(one, dict)], "held": data.get("held") is True}
    told.update({name: _text(tame(data.get(name))) for name in ("driver", "cuda", "replaced")})
    waits = run.status is Status.QUEUED
    status, detail = (Status.PREPARING, None) if waits else (run.status, run.detail)
    return replace(run, status=status, detail=detail, gpu={**(run.gpu or {}), "got": told})


def _gpu_idle(run: Run, event: Event) -> Run:
    told = {"warning": _text(tame(event.data.get("warning"))), "diagnosis": _diagnosis(event.data.get("diagnosis"))}
    return replace(run, gpu={**(run.gpu or {}), "idle": told})


def _verdict(run: Run, told: Any) -> JsonDict | None:
    """What it got and what became of it."""
    if not isinstance(told, dict):
        return run.gpu
    known: JsonDict = tame(told)
    used = known.get("used") if known.get("used") in USED else "unknown"
    line = _text(known.get("line")) or f"GPU used: {used}"
    found = _diagnosis(told.get("diagnosis"))
    return {**known, "used": used, "line": line, "diagnosis": found, "got": (run.gpu or {}).get("got")}


def _gpu(told: JsonDict) -> JsonDict:
    found: JsonDict = {name: _text(tame(told.get(name))) for name in ("uuid", "name", "capability", "bus_id")}
    figures = {name: tame(told.get(name)) for name in ("index", "memory_clock", "memory_total", "memory_free")}
    return {**found, **{name: one if isinstance(one, (int, float)) else None for name, one in figures.items()}}


def _diagnosis(told: Any) -> JsonDict | None:
    if not isinstance(told, dict):
        return None
    return {name: _text(tame(told.get(name))) for name in ("cause", "remedy", "explain")}


def _spark(run: Run, event: Event) -> Run:
    """A Spark application. A run may have several, one after the other: the newest counts."""
    facts = {name: _text(tame(event.data.get(name))) for name in _SPARK}
    number = _whole(event.data.get("number"))
    known = (
        run.spark if (run.spark or {}).get("app") == facts["app"] else {"troubles": (run.spark or {}).get("troubles")}
    )
    return replace(run, spark={**(known or {}), **facts, "applications": number})


def _spark_progress(run: Run, event: Event) -> Run:
    told = event.data
    known = {name: _figures(told.get(name)) for name in ("jobs", "stages", "tasks", "executors")}
    members = (run.spark or {}).get("members")
    if isinstance(told.get("members"), list):
        members = [one for one in tame(told["members"]) if isinstance(one, dict)]
    ended = told.get("ended") is True
    return replace(run, spark={**(run.spark or {}), **known, "members": members, "ended": ended})


def _spark_trouble(run: Run, event: Event) -> Run:
    """The first of each kind; a supervisor that took over may tell the last one of them twice."""
    known = (run.spark or {}).get("troubles") or []
    told = {name: tame(event.data.get(name)) for name in _TROUBLE}
    if len(known) >= _MOST or any(one.get("number") == told["number"] for one in known):
        return run
    return replace(run, spark={**(run.spark or {}), "troubles": [*known, told]})


def _figures(told: Any) -> JsonDict:
    """Names and counts."""
    found: JsonDict = tame(told) if isinstance(told, dict) else {}
    return {name: count for name, count in found.items() if _whole(count) is not None}


def _started(run: Run, event: Event) -> Run:
    return replace(run, status=Status.RUNNING, detail=None, started=_number(event.data.get("time"), event.time))


def _stopping(run: Run, event: Event) -> Run:
    why = {"cancel": "being canceled", "timeout": "time limit exceeded, being stopped"}
    detail = why.get(str(event.data.get("why")), "being stopped")
    stuck = _pids(event.data.get("stuck"))
    if stuck:
        detail += f"; cannot be killed: process {', '.join(str(pid) for pid in stuck)}"
    return replace(run, detail=detail)


def _collecting(run: Run, event: Event) -> Run:
    return replace(run, detail="collecting outputs")


def _finished(run: Run, event: Event) -> Run:
    data = event.data
    ending, code, signal = endings.told(data)
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
        exit=code,
        signal=signal,
        cause=_text(data.get("cause")),
        failure=Failure.from_json(data.get("failure")),
        ended=ended,
        outputs=_whole(data.get("outputs")),
        output_bytes=_whole(data.get("output_bytes")),
        uncollected=_whole(data.get("uncollected")) or 0,
        log_size=_whole(data.get("log_size")),
        leftovers=_pids(data.get("leftovers")),
        gpu=_verdict(run, data.get("gpu")),
        left_out=leave_out(run, _texts(data.get("left_out"))).left_out,
    )


_STEPS: dict[str, Callable[[Run, Event], Run]] = {
    "accepted": _accepted,
    "step": _step,
    "queued": _queued,
    "gpus": _gpus,
    "gpu_idle": _gpu_idle,
    "spark": _spark,
    "spark_progress": _spark_progress,
    "spark_trouble": _spark_trouble,
    "started": _started,
    "stopping": _stopping,
    "collecting": _collecting,
    "finished": _finished,
}


def ending_words(run: Run) -> str | None:
    """The ending with its number, for people: ``failed (exit 3)``."""
    if run.ending != endings.FAILED:
        return run.ending
    if run.signal is None and run.exit is None:  # a run inside another
        return run.ending
    return f"failed (signal {run.signal})" if run.signal is not None else f"failed (exit {run.exit})"


def event_from(data: JsonDict) -> Event:
    """One line of a journal as a value; raises ValueError, KeyError or TypeError if it is none."""
    if not isinstance(data["data"], dict):
        raise TypeError("data must be a mapping")
    return Event(str(data["w"]), check_seq(data["seq"]), _number(data["t"], 0.0), str(data["kind"]), data["data"])


def tame(value: Any, depth: int = 0) -> Any:
    """What a target told, within bounds: plain values, none of them long, none of them deep."""
    if isinstance(value, str):
        return value[:_LONGEST]
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value if not isinstance(value, int) or abs(value) < 2**63 else None
    if isinstance(value, dict) and depth < _DEEPEST:
        return {str(name)[:_LONGEST]: tame(one, depth + 1) for name, one in islice(value.items(), _MOST)}
    if isinstance(value, list) and depth < _DEEPEST:
        return [tame(one, depth + 1) for one in value[:_MOST]]
    return None


def _text(value: Any) -> str | None:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else None


def _texts(value: Any) -> list[str]:
    told = tame(value)
    return [one for one in told if isinstance(one, str)] if isinstance(told, list) else []


def _whole(value: Any) -> int | None:
    """A count, or a number of bytes."""
    return value if type(value) is int and 0 <= value < 2**63 else None


def _pids(value: Any) -> tuple[int, ...]:
    return tuple(pid for pid in value[:_MOST_PIDS] if _whole(pid)) if isinstance(value, list) else ()


def _number(value: Any, otherwise: float) -> float:
    """A moment, if it can be one: seconds since 1970, before the year 5000."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e11 else otherwise
