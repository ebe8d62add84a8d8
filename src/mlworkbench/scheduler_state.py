"""What a scheduler reports about a run: validation, its effect on the run's state, and when to ask again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .hosts.replies import number, printable
from .model import JsonDict, Run, Status
from .remote.shared.starter_names import ENDED, RUNNING, SLURM, UNKNOWN
from .sanitize import plain

QUEUED = "queued"
FIRST_PAUSE, MAX_PAUSE = 1.0, 30.0  # seconds between two requests while following a run
_REPORT_AGE = 15.0  # maximum seconds between a report and its arrival here
_STATES = (QUEUED, RUNNING, ENDED, UNKNOWN)
_MAX_NODES, _MAX_TEXT, _MAX_TIME = 1000, 500, 1e11


def parse_report(data: object) -> JsonDict:
    """Return the report about one run, as stored in ``Run.job``; values of a wrong type are left out."""
    given: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    state = given.get("state")
    report: JsonDict = {"state": state if state in _STATES else UNKNOWN}
    for name in ("job", "reason", "hint"):
        if isinstance(given.get(name), str) and given[name].strip():
            report[name] = printable(given[name], _MAX_TEXT)
    for name in ("position", "estimated_start", "as_of"):
        value = number(given.get(name))
        if value is not None and 0 <= value < _MAX_TIME:
            report[name] = value
    if isinstance(given.get("nodes"), list):
        nodes = [printable(node, 100) for node in given["nodes"][:_MAX_NODES] if isinstance(node, str)]
        report.update({"nodes": nodes} if nodes else {})
    return report


def has_ended(report: JsonDict) -> bool:
    """Return whether the run has no job any more, so that its ending can be concluded from the evidence."""
    return report["state"] == ENDED or (report["state"] == UNKNOWN and "as_of" not in report)


def with_report(run: Run, report: JsonDict) -> Run:
    """Return the run with a scheduler's report. Without an answer, the last known state remains."""
    if run.status.final or (report["state"] == QUEUED and _has_just_started(run)):
        return run
    waited = is_queued_by_scheduler(run)
    if report["state"] == UNKNOWN:  # the last known state, with the reason why there is no newer one
        as_of = {"as_of": report["as_of"]} if "as_of" in report else {}
        problem = {"problem": report["reason"]} if "reason" in report else {}
        report = {**(run.job or {"state": UNKNOWN}), **as_of, **problem}
    run = replace(run, job=report)
    if report["state"] == UNKNOWN and run.accepted is None:
        return replace(run, detail=report.get("problem"))
    if report["state"] == QUEUED and "job" not in report:  # before the submission, such as a build on the login node
        return replace(run, status=Status.PREPARING, detail=report.get("reason"))
    if report["state"] == QUEUED:
        return replace(run, status=Status.QUEUED, detail=f"in {_name(run)}: {_describe_queue(report, _name(run))}")
    if report["state"] == RUNNING and (waited or run.accepted is None):
        if run.started is not None:
            return replace(run, status=Status.RUNNING, detail=None)
        return replace(run, status=Status.PREPARING, detail="the job is starting")  # its events follow
    return run


def _has_just_started(run: Run) -> bool:
    """Return whether a report may be older than the start: targets ask the scheduler every few seconds only."""
    return run.started is not None and abs(time.time() - run.started) < _REPORT_AGE


def is_queued_by_scheduler(run: Run) -> bool:
    """Return whether the scheduler, and not a queue of mlw, is what the run waits for."""
    return run.status is Status.QUEUED and (run.job or {}).get("state") == QUEUED


def _name(run: Run) -> str:
    return "Slurm" if run.spec.starter == SLURM else "the scheduler"


def _describe_queue(report: JsonDict, scheduler: str) -> str:
    """Return why a job waits, and when it starts: ``Resources, expected start 14:30``."""
    parts = [str(report.get("reason") or "waiting")]
    if "position" in report:
        parts.append(f"position {report['position']:.0f}")
    start = report.get("estimated_start")
    if start and start > time.time():
        parts.append(f"expected start {format_time(start)}")
    return ", ".join([*parts, *_as_of(report, scheduler)])


def describe_job(run: Run) -> str | None:
    """Return the job, its nodes, and the age of this information: ``1234 on n1``. None: no job is known."""
    report = run.job
    if not report or "job" not in report:
        return None
    nodes: list[str] = report.get("nodes") or []
    more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
    where = f" on {', '.join(nodes[:4])}{more}" if nodes else ""
    return ", ".join(
        [f"{plain(str(report['job']), 100)}{where}", *([] if run.status.final else _as_of(report, _name(run)))]
    )


def _as_of(report: JsonDict, scheduler: str) -> list[str]:
    """Return why the state may be outdated, if it may be."""
    if "as_of" in report:
        return [f"as of {format_time(report['as_of'])} ({scheduler} does not respond)"]
    return [str(report["problem"])] if "problem" in report else []


def format_time(timestamp: float) -> str:
    """Return the local time; on another day, with the date."""
    moment = time.localtime(timestamp)
    is_today = moment[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M", moment)


@dataclass
class ReportTimer:
    """Back-off between the requests for a followed run's report. A new state starts it again."""

    state: str | None = None
    pause: float = 0.0
    asked: float = 0.0  # monotonic

    def is_due(self) -> bool:
        return time.monotonic() - self.asked >= self.pause

    def record(self, report: JsonDict) -> None:
        same = report["state"] == self.state
        self.pause = min(MAX_PAUSE, 2 * self.pause) if same and self.pause else FIRST_PAUSE
        self.state, self.asked = report["state"], time.monotonic()
