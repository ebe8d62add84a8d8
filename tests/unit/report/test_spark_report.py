"""Reports of Spark applications: text and records computed from events."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.cli.follow_view import print_summary
from mlworkbench.cli.run_page import format_run
from mlworkbench.history.run_state import fold
from mlworkbench.history.store import History
from mlworkbench.model import Event, Run, Status
from mlworkbench.paths import RunFolder
from mlworkbench.report import spark_report as words
from mlworkbench.report.run_records import record, to_display
from mlworkbench.runs.run_messages import RunMessages
from tests.unit.history.test_store import paths, spec

FACTS = {
    "app": "app-20261116003435-0000",
    "version": "4.3.0",
    "master": "spark://head:7077",
    "deploy": "client",
    "ui": "http://head:4040",
    "history": "http://history:18080/history/app-20261116003435-0000/jobs/",
    "events": "/home/you/.mlw/runs/r/spark",
    "number": 1,
}
PROGRESS = {
    "app": FACTS["app"],
    "jobs": {"total": 3, "done": 2, "failed": 0},
    "stages": {"total": 20, "done": 14, "failed": 0},
    "tasks": {"total": 400, "done": 311, "failed": 2},
    "executors": {"now": 3, "most": 4, "lost": 1},
    "members": [{"executor": "1", "host": "w1", "cores": 4, "gpus": ["0", "1"]}],
    "ended": False,
}
LOST = {"number": 1, "what": "executor", "executor": "0", "host": "w2", "reason": "Command exited with code 137"}
TASK_FAILED = {"number": 2, "what": "task", "stage": 2, "host": "w1", "reason": "ValueError: bad (train.py:7)"}


def run_with(*kinds: tuple[str, dict]) -> Run:
    events = [Event("sup", n, 1000.0 + n, kind, data) for n, (kind, data) in enumerate(kinds, 1)]
    return fold(Run(spec(0), status=Status.RUNNING), events)


RUN = run_with(
    ("spark", {**FACTS, "ui": None}),
    ("spark", FACTS),
    ("spark_progress", PROGRESS),
    ("spark_trouble", LOST),
    ("spark_trouble", TASK_FAILED),
    ("spark_trouble", TASK_FAILED),
)
LINE = "app-20261116003435-0000, 14 of 20 stages, 3 executors (1 lost), 2 tasks failed"


def test_the_record_contains_the_spark_application():
    spark = record(RUN)["spark"]
    assert spark["app"] == FACTS["app"]
    assert spark["stages"] == {"total": 20, "done": 14, "failed": 0}
    assert [problem["number"] for problem in spark["troubles"]] == [1, 2], "none twice"
    json.dumps(spark)


def test_tables_show_a_summary_and_the_ui_during_the_run():
    fields = to_display(record(RUN))
    assert (fields["spark"], fields["spark_ui"]) == (LINE, "http://head:4040")
    ended = to_display(record(replace(RUN, status=Status.COMPLETED, ending="succeeded")))
    assert ended["spark"] == LINE
    assert "spark_ui" not in ended, "it is no longer available"
    assert ended["spark_history"] == FACTS["history"]


def test_a_local_master_has_no_executors():
    executors = {"now": 0, "most": 0, "lost": 0}
    run = run_with(("spark", {**FACTS, "app": "local-1"}), ("spark_progress", {**PROGRESS, "executors": executors}))
    assert words.summary(run.spark or {}) == "local-1, 14 of 20 stages, 2 tasks failed"


def test_a_second_application_resets_progress_but_keeps_problems():
    run = fold(RUN, [Event("sup", 9, 1009.0, "spark", {**FACTS, "app": "app-2", "number": 2})])
    assert run.spark is not None
    assert run.spark.get("stages") is None
    assert words.summary(run.spark) == "app-2, application 2 of this run"
    assert len(words.describe_problems(run.spark)) == 2


def test_runs_without_spark_have_no_spark_fields():
    run = Run(spec(0))
    assert record(run)["spark"] is None
    assert not [name for name in to_display(record(run)) if "spark" in name]


def test_the_run_page_shows_the_application(tmp_path):
    text = "\n".join(format_run(History(paths(tmp_path)), RUN, 120))
    assert LINE in text
    assert "Spark 4.3.0, master spark://head:7077" in text
    assert "2 of 3 jobs, 14 of 20 stages, 311 of 400 tasks (2 failed)" in text
    assert "1 on w1, 4 cores, GPU 0, 1" in text
    assert "executor 0 on w2 was lost: Command exited with code 137" in text
    assert "http://head:4040" in text


def test_followers_see_each_message_once():
    lines = []
    messages = RunMessages(lines.append)
    messages.state_changed(RUN)
    messages.state_changed(RUN)
    assert lines == [
        "Spark: application app-20261116003435-0000 (Spark 4.3.0, master spark://head:7077)",
        "Spark UI: http://head:4040",
        "Spark: executor 0 on w2 was lost: Command exited with code 137",
        "Spark: a task of stage 2 on w1 failed: ValueError: bad (train.py:7)",
    ]


def test_the_execution_summary_has_a_line(tmp_path, capsys):
    print_summary(replace(RUN, status=Status.COMPLETED, ending="succeeded"), RunFolder(str(tmp_path)))
    assert f"Spark:     {LINE}\n" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["javascript:alert(1)", "file:///etc/passwd", 7, None, ["http://x"]])
def test_an_invalid_url_is_not_a_link(address):
    run = run_with(("spark", {**FACTS, "ui": address}))
    assert "spark_ui" not in to_display(record(run))


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=2000)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
KINDS = st.sampled_from([("spark", FACTS), ("spark_progress", PROGRESS), ("spark_trouble", LOST)])


@given(st.lists(st.tuples(KINDS, VALUES), max_size=4), st.data())
def test_any_spark_data_is_bounded_and_can_be_shown(events, data):
    kinds = []
    for (kind, facts), value in events:
        kinds.append((kind, {**facts, data.draw(st.sampled_from(list(facts))): value}))
    run = run_with(*kinds)
    to_display(record(run))
    if run.spark and run.spark.get("app"):
        words.kind(run.spark), words.progress(run.spark), words.members(run.spark), words.describe_problems(run.spark)
    RunMessages(lambda line: None).state_changed(run)
    assert len(json.dumps(run.spark)) < 1_000_000


def test_the_number_of_problems_is_limited():
    run = run_with(*[("spark_trouble", {**LOST, "number": number, "reason": "x" * 5000}) for number in range(500)])
    assert run.spark is not None
    assert len(run.spark["troubles"]) == 64
    assert len(run.spark["troubles"][0]["reason"]) == 1000


@pytest.mark.parametrize(
    ("address", "page", "way"),
    [
        ("10.0.0.7", "http://127.0.0.1:4041", "ssh -L 4041:127.0.0.1:4041 ada@10.0.0.7"),
        ("10.0.0.7", "http://edge:4041", None),  # reachable from other machines
        (None, "http://127.0.0.1:4041", None),  # the page is on this machine
        ("10.0.0.7", "http://127.0.0.1:4041 ; rm", None),
    ],
)
def test_the_tunnel_to_a_page_on_a_loopback_address(address, page, way):
    run = run_with(("spark", {**FACTS, "ui": page}))
    compute = replace(run.spec.compute, address=address, username="ada")
    assert words.tunnel(replace(run, spec=replace(run.spec, compute=compute))) == way
    through = replace(compute, port=2222, jump_host="gate")
    way = way and way.replace(" ada@", " -p 2222 -J gate ada@")
    assert words.tunnel(replace(run, spec=replace(run.spec, compute=through))) == way
