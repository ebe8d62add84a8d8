"""Compute the state of a run from its events. No other module does so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from math import isfinite
from typing import Any

from ..failure import Failure
from ..model import Event, JsonDict, Run, Status
from ..remote.shared import run_endings
from ..remote.shared.event_numbers import check_seq
from ..remote.shared.process_launchers import MAX_PROCESSES, MAX_RANK

_STATUS = {
    run_endings.SUCCEEDED: Status.COMPLETED,
    run_endings.CANCELLED: Status.CANCELED,
    run_endings.CANCELLED_FORCED: Status.CANCELED,
}

MAX_WRITERS = 64  # maximum number of event writers; usually there is only one
MAX_WRITER_LENGTH = 200
USED = ("yes", "partly", "no", "unknown")
_MAX_LENGTH, _MAX_ITEMS, _MAX_DEPTH = 1000, 64, 6
_MAX_TEXT, _MAX_PIDS = 20_000, 10_000
_SPARK_FIELDS = ("app", "version", "master", "deploy", "ui", "history", "events")
_TROUBLE_FIELDS = ("number", "app", "what", "reason", "executor", "host", "stage", "name", "job")


def fold(run: Run, events: Iterable[Event]) -> Run:
    """Return the run after applying the events. Unknown kinds, from newer supervisors, are ignored."""
    for event in events:
        handler = _HANDLERS.get(event.kind)
        if handler and not run.status.final:
            run = handler(run, event)
    return run


def add_left_out(run: Run, lines: Iterable[str]) -> Run:
    """Return the run with additional notes about data that was not read."""
    merged = tuple(dict.fromkeys((*run.left_out, *lines)))[:_MAX_ITEMS]
    return run if merged == run.left_out else replace(run, left_out=merged)


def _accepted(run: Run, event: Event) -> Run:
    root = _text(limit_value(event.data.get("root")))
    run = replace(run, status=Status.PREPARING, detail=None, accepted=event.time, root=root or run.root)
    job = _text(limit_value(event.data.get("job")))
    return replace(run, job={**(run.job or {"state": "running"}), "job": job}) if job else run


def _step(run: Run, event: Event) -> Run:
    return replace(run, status=Status.PREPARING, detail=_text(event.data.get("step")))


def _queued(run: Run, event: Event) -> Run:
    return replace(run, status=Status.QUEUED, detail=_text(event.data.get("reason")))


def _gpus(run: Run, event: Event) -> Run:
    """Record the GPUs that the run was assigned or can see. A queued run becomes Preparing."""
    data = event.data
    gpus = data["gpus"][:_MAX_ITEMS] if isinstance(data.get("gpus"), list) else []
    assigned: JsonDict = {
        "gpus": [_gpu(gpu) for gpu in gpus if isinstance(gpu, dict)],
        "held": data.get("held") is True,
    }
    assigned.update({name: _text(limit_value(data.get(name))) for name in ("driver", "cuda", "replaced")})
    waits = run.status is Status.QUEUED
    status, detail = (Status.PREPARING, None) if waits else (run.status, run.detail)
    return replace(run, status=status, detail=detail, gpu={**(run.gpu or {}), "got": assigned})


def _gpu_idle(run: Run, event: Event) -> Run:
    idle = {
        "warning": _text(limit_value(event.data.get("warning"))),
        "diagnosis": _diagnosis(event.data.get("diagnosis")),
    }
    return replace(run, gpu={**(run.gpu or {}), "idle": idle})


def _verdict(run: Run, data: Any) -> JsonDict | None:
    """Return the GPU verdict, combined with the assigned GPUs."""
    if not isinstance(data, dict):
        return run.gpu
    verdict: JsonDict = limit_value(data)
    used = verdict.get("used") if verdict.get("used") in USED else "unknown"
    line = _text(verdict.get("line")) or f"GPU used: {used}"
    diagnosis = _diagnosis(data.get("diagnosis"))
    return {**verdict, "used": used, "line": line, "diagnosis": diagnosis, "got": (run.gpu or {}).get("got")}


def _gpu(data: JsonDict) -> JsonDict:
    texts: JsonDict = {name: _text(limit_value(data.get(name))) for name in ("uuid", "name", "capability", "bus_id")}
    numbers = {name: limit_value(data.get(name)) for name in ("index", "memory_clock", "memory_total", "memory_free")}
    return {**texts, **{name: value if isinstance(value, (int, float)) else None for name, value in numbers.items()}}


def _diagnosis(data: Any) -> JsonDict | None:
    if not isinstance(data, dict):
        return None
    return {name: _text(limit_value(data.get(name))) for name in ("cause", "remedy", "explain")}


def _spark(run: Run, event: Event) -> Run:
    """Record a Spark application. If a run starts several in sequence, the newest one counts."""
    facts = {name: _text(limit_value(event.data.get(name))) for name in _SPARK_FIELDS}
    number = _count(event.data.get("number"))
    previous = (
        run.spark if (run.spark or {}).get("app") == facts["app"] else {"troubles": (run.spark or {}).get("troubles")}
    )
    return replace(run, spark={**(previous or {}), **facts, "applications": number})


def _spark_progress(run: Run, event: Event) -> Run:
    data = event.data
    counts = {name: _counts(data.get(name)) for name in ("jobs", "stages", "tasks", "executors")}
    members = (run.spark or {}).get("members")
    if isinstance(data.get("members"), list):
        members = [member for member in limit_value(data["members"]) if isinstance(member, dict)]
    ended = data.get("ended") is True
    return replace(run, spark={**(run.spark or {}), **counts, "members": members, "ended": ended})


def _spark_trouble(run: Run, event: Event) -> Run:
    """Record a Spark problem once. A supervisor that takes over a run may report the last problem again."""
    troubles = (run.spark or {}).get("troubles") or []
    trouble = {name: limit_value(event.data.get(name)) for name in _TROUBLE_FIELDS}
    if len(troubles) >= _MAX_ITEMS or any(other.get("number") == trouble["number"] for other in troubles):
        return run
    return replace(run, spark={**(run.spark or {}), "troubles": [*troubles, trouble]})


def _counts(value: Any) -> JsonDict:
    """Return the entries whose values are counts."""
    counts: JsonDict = limit_value(value) if isinstance(value, dict) else {}
    return {name: count for name, count in counts.items() if _count(count) is not None}


def _started(run: Run, event: Event) -> Run:
    return replace(run, status=Status.RUNNING, detail=None, started=_timestamp(event.data.get("time"), event.time))


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
    ending, code, signal = run_endings.parse_ending(data)
    return replace(
        run,
        status=_STATUS.get(ending, Status.FAILED),
        detail=None,
        ending=ending,
        exit=code,
        signal=signal,
        cause=_text(data.get("cause")),
        failure=Failure.from_json(data.get("failure")),
        ended=_end_time(run, event),
        outputs=_count(data.get("outputs")),
        output_bytes=_count(data.get("output_bytes")),
        checkpoint_bytes=_count(data.get("checkpoints")) or None,
        uncollected=_count(data.get("uncollected")) or 0,
        log_size=_count(data.get("log_size")),
        leftovers=_pids(data.get("leftovers")),
        ranks=tuple(_ranks(data.get("ranks"))),
        gpu=_verdict(run, data.get("gpu")),
        left_out=add_left_out(run, _texts(data.get("left_out"))).left_out,
        unkept=tuple(_texts(data.get("unkept")))[:_MAX_ITEMS],
    )


def _end_time(run: Run, event: Event) -> float:
    elapsed = event.data.get("elapsed")
    if run.started is not None and isinstance(elapsed, (int, float)) and 0 <= elapsed < 1e11:
        # The target's monotonic clock is correct even if its wall clock was changed in the meantime.
        return run.started + elapsed
    return _timestamp(event.data.get("ended"), event.time)


def _attempt_ended(run: Run, event: Event) -> Run:
    """Record the ending of an attempt that another one follows."""
    data = event.data
    ending, code, signal = run_endings.parse_ending(data)
    number = (_count(data.get("attempt")) or 0) % 10_000
    delay = data.get("delay")
    attempt: JsonDict = {"number": number, "ending": ending, "exit": code, "signal": signal}
    attempt.update(started=run.started, ended=_end_time(run, event), cause=_text(limit_value(data.get("cause"))))
    if data.get("ranks"):
        attempt["ranks"] = _ranks(data["ranks"])
    attempt["gpu"] = (
        _text(limit_value((data.get("gpu") or {}).get("line"))) if isinstance(data.get("gpu"), dict) else None
    )
    total = f" of {run.spec.retries.limit + 1}" if run.spec.retries else ""
    pause = f"{delay:g} s" if isinstance(delay, (int, float)) and 0 <= delay < 1e6 else "a while"
    return replace(
        run,
        status=Status.QUEUED,
        detail=f"waiting {pause} before attempt {number + 1}{total}",
        attempts=(*run.attempts, attempt)[-_MAX_ITEMS:],
        started=None,
        gpu=None,
    )


_HANDLERS: dict[str, Callable[[Run, Event], Run]] = {
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
    "attempt_ended": _attempt_ended,
    "finished": _finished,
}


def format_ending(run: Run) -> str | None:
    """Return the ending with its exit code or signal for display, as in ``failed (exit 3)``."""
    if run.ending != run_endings.FAILED:
        return run.ending
    if run.signal is None and run.exit is None:  # a nested run has neither
        return run.ending
    return f"failed (signal {run.signal})" if run.signal is not None else f"failed (exit {run.exit})"


def parse_event(data: JsonDict) -> Event:
    """Parse a journal line; raise ValueError, KeyError, or TypeError if it is not an event."""
    if not isinstance(data["data"], dict):
        raise TypeError("data must be a mapping")
    return Event(str(data["w"]), check_seq(data["seq"]), _timestamp(data["t"], 0.0), str(data["kind"]), data["data"])


def limit_value(value: Any, depth: int = 0) -> Any:
    """Return a value from a target, restricted to plain types and limited in length and depth."""
    if isinstance(value, str):
        return value[:_MAX_LENGTH]
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value if not isinstance(value, int) or abs(value) < 2**63 else None
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        return {
            str(name)[:_MAX_LENGTH]: limit_value(item, depth + 1) for name, item in islice(value.items(), _MAX_ITEMS)
        }
    if isinstance(value, list) and depth < _MAX_DEPTH:
        return [limit_value(item, depth + 1) for item in value[:_MAX_ITEMS]]
    return None


def _text(value: Any) -> str | None:
    return value[:_MAX_TEXT] if isinstance(value, str) else None


def _texts(value: Any) -> list[str]:
    items = limit_value(value)
    return [item for item in items if isinstance(item, str)] if isinstance(items, list) else []


def _count(value: Any) -> int | None:
    """Return a count or a number of bytes, or None if it is invalid."""
    return value if type(value) is int and 0 <= value < 2**63 else None


def _pids(value: Any) -> tuple[int, ...]:
    return tuple(pid for pid in value[:_MAX_PIDS] if _count(pid)) if isinstance(value, list) else ()


def _ranks(value: Any) -> list[JsonDict]:
    """Return the processes of a launcher, each from a list: rank, host, process ID, exit code, and signal."""
    rows = value[:MAX_PROCESSES] if isinstance(value, list) else []
    return [rank for rank in map(_rank, rows) if rank is not None]


def _rank(row: Any) -> JsonDict | None:
    if not isinstance(row, list) or len(row) < 5 or _count(row[0]) is None or row[0] > MAX_RANK:
        return None
    code, signal = (value if _count(value) is not None and value < 256 else None for value in row[3:5])
    host = _text(row[1])
    return {"rank": row[0], "host": host and host[:255], "pid": _count(row[2]), "exit": code, "signal": signal}


def _timestamp(value: Any, default: float) -> float:
    """Return a valid timestamp (seconds since 1970, before the year 5000), or the default."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e11 else default
