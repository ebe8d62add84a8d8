"""How the report of a scheduler changes the state of a run, and how it is shown."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from mlworkbench.history.run_state import fold
from mlworkbench.inferred_state import wait_for_turn, waits_for_turn
from mlworkbench.model import Event, Run, Status
from mlworkbench.plan import plan
from mlworkbench.report.run_records import outcome, record
from mlworkbench.scheduler_state import (
    MAX_PAUSE,
    ReportTimer,
    describe_job,
    format_time,
    has_ended,
    parse_report,
    with_report,
)
from tests.unit.test_plan import PARTS

RUN = Run(plan(replace(PARTS, starter="slurm"), "run-1", "key-1", 123.0))
QUEUED = {"state": "queued", "job": "7", "reason": "Resources"}
RUNNING = {"state": "running", "job": "7", "nodes": ["n1"]}


def updated(run: Run, *reports: dict[str, object]) -> Run:
    for report in reports:
        run = with_report(run, parse_report(report))
    return run


def test_a_queued_run_shows_why_it_waits() -> None:
    start = time.time() + 40
    run = updated(RUN, {**QUEUED, "estimated_start": start, "position": 3})
    assert outcome(run) == f"Queued (in Slurm: Resources, position 3, expected start {format_time(start)})"
    facts = record(run)
    assert facts["job"]["reason"] == "Resources" and facts["scheduler_job"] == "7"
    assert outcome(updated(RUN, {**QUEUED, "estimated_start": 5})) == "Queued (in Slurm: Resources)"


def test_a_scheduler_of_a_plugin() -> None:
    run = replace(RUN, spec=replace(RUN.spec, starter="plugin:lsf"))
    assert outcome(updated(run, QUEUED)) == "Queued (in the scheduler: Resources)"


def test_a_build_on_the_login_node_is_a_preparation() -> None:
    run = updated(RUN, {"state": "queued", "reason": "building the environment"})
    assert outcome(run) == "Preparing (building the environment)" and describe_job(run) is None


def test_the_start_of_the_job_ends_the_wait() -> None:
    run = updated(RUN, QUEUED, RUNNING)
    assert (run.status, run.detail, describe_job(run)) == (Status.PREPARING, "the job is starting", "7 on n1")
    started = replace(RUN, status=Status.RUNNING, accepted=1.0, started=2.0)
    assert updated(started, RUNNING).status is Status.RUNNING
    requeued = updated(started, RUNNING, QUEUED)
    assert outcome(requeued) == "Queued (in Slurm: Resources)"
    assert updated(requeued, RUNNING).status is Status.RUNNING  # an old answer must not stay


def test_a_report_from_before_the_start_changes_nothing() -> None:
    started = replace(RUN, status=Status.RUNNING, accepted=1.0, started=time.time() - 2)
    assert updated(started, QUEUED).status is Status.RUNNING
    assert updated(replace(started, started=time.time() - 60), QUEUED).status is Status.QUEUED


def test_a_queued_child_of_a_sweep_is_listed_on_its_own() -> None:
    child = replace(RUN, spec=replace(RUN.spec, parent="sweep-1"))
    assert waits_for_turn(wait_for_turn(child)) and not waits_for_turn(updated(child, QUEUED))


def test_the_journal_names_the_job() -> None:
    event = Event("n1", 1, 5.0, "accepted", {"job": "7", "restart": 0})
    assert describe_job(fold(RUN, [event])) == "7"
    assert describe_job(fold(updated(RUN, RUNNING), [event])) == "7 on n1"
    assert fold(RUN, [replace(event, data={})]).job is None


def test_a_retry_delay_of_the_supervisor_stays() -> None:
    waiting = replace(RUN, status=Status.QUEUED, detail="waiting 10 s before attempt 2", accepted=1.0)
    assert updated(waiting, RUNNING).detail == "waiting 10 s before attempt 2"


def test_without_an_answer_the_last_state_stays_with_its_age() -> None:
    run = updated(RUN, QUEUED, {"state": "unknown", "as_of": 5.0})
    assert outcome(run) == f"Queued (in Slurm: Resources, as of {format_time(5.0)} (Slurm does not respond))"
    assert not has_ended(parse_report({"state": "unknown", "as_of": 5.0}))
    assert outcome(updated(run, QUEUED)) == "Queued (in Slurm: Resources)"
    silent = "Slurm does not respond: timed out"
    assert outcome(updated(RUN, {"state": "unknown", "reason": silent})) == f"Submitting ({silent})"
    assert (
        outcome(updated(RUN, QUEUED, {"state": "unknown", "reason": silent}))
        == f"Queued (in Slurm: Resources, {silent})"
    )
    assert describe_job(updated(RUN, RUNNING, {"state": "unknown", "as_of": 5.0})) == (
        f"7 on n1, as of {format_time(5.0)} (Slurm does not respond)"
    )


@pytest.mark.parametrize(
    ("state", "ended"), [("queued", False), ("running", False), ("ended", True), ("unknown", True)]
)
def test_an_ended_job_is_examined(state: str, ended: bool) -> None:
    assert has_ended(parse_report({"state": state})) is ended


def test_a_final_state_does_not_change() -> None:
    final = replace(RUN, status=Status.FAILED)
    assert updated(final, QUEUED) == final


def test_reports_are_untrusted() -> None:
    assert parse_report(None) == parse_report(["queued"]) == parse_report({"state": ["x"]}) == {"state": "unknown"}
    report = parse_report(
        {"state": "queued", "job": 7, "reason": "a\x1b[31m", "nodes": ["n1", 3, "\x07"], "as_of": "x", "position": -1}
    )
    assert report["nodes"] == ["n1", r"\x07"] and "\x1b" not in report["reason"]
    assert set(report) == {"state", "reason", "nodes"}


def test_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = ReportTimer()
    assert timer.is_due()
    pauses = []
    for _ in range(7):
        timer.record(QUEUED)
        pauses.append(timer.pause)
    assert pauses == [1, 2, 4, 8, 16, 30, 30] and pauses[-1] == MAX_PAUSE and not timer.is_due()
    timer.record(RUNNING)
    assert timer.pause == 1
