"""GPUs of executors, in the verdict on a run's GPUs."""

from __future__ import annotations

import socket

import pytest

from mlworkbench.remote.gpus.whose import Owner, Processes, owner_of
from mlworkbench.remote.spark.gpus import asked_for, is_here, judge

SPEC = {"commands": [{"argv": ["python", "_spark", "--conf", "spark.executor.resource.gpu.amount=2", "job.py"]}]}
CLUSTER = "spark://head:7077"
YES = {
    "used": "yes",
    "line": "GPU used: yes – H200",
    "summary": "H200",
    "reason": None,
    "gpus": [{"index": 0}],
    "evidence": {"cuda": "12"},
}
NO = {"used": "no", "line": "GPU used: no – x", "reason": "x", "gpus": [], "evidence": {}, "diagnosis": {"cause": "c"}}


def test_what_is_asked_for_each_executor():
    assert asked_for(SPEC, {}) == "2"
    assert asked_for(SPEC, {"spark.executor.resource.gpu.amount": "1"}) == "1", "the application has the last word"
    assert asked_for({"commands": [{"argv": ["python"]}]}, {}) is None
    assert asked_for({"commands": [{"argv": ["python"]}]}, {"spark.executor.resource.gpu.amount": "0"}) is None


@pytest.mark.parametrize("verdict", [None, NO])
def test_asked_for_and_none_given_is_no_with_cause_and_remedy(verdict):
    found = judge(verdict, "1", {}, True, CLUSTER)
    assert (found["used"], found["line"]) == ("no", "GPU used: no – no executor received a GPU")
    assert found["diagnosis"]["cause"] == "spark.executor.resource.gpu.amount is 1, but no executor received a GPU"
    assert "spark.worker.resource.gpu.discoveryScript" in found["diagnosis"]["remedy"]
    assert found["asked"] == "spark.executor.resource.gpu.amount 1"


def test_what_was_not_read_is_not_known():
    found = judge(None, "1", None, True, CLUSTER)
    assert found["used"] == "unknown" and "Spark's events were not read" in found["line"] and not found["diagnosis"]
    assert judge(YES, "1", None, True, CLUSTER)["line"] == YES["line"]


def test_a_local_master_gives_nothing_to_executors():
    assert "Gpus in the run configuration" in judge(None, "1", {}, True, "local[*]")["diagnosis"]["remedy"]


@pytest.mark.parametrize("verdict", [None, NO])
def test_executors_elsewhere_are_not_measured_and_nobody_says_yes(verdict):
    found = judge(verdict, "1", {"w1.example": ["0", "1"], "w2.example": ["0"]}, True, CLUSTER)
    assert found["used"] == "unknown"
    assert found["reason"] == (
        "executors received GPUs that cannot be measured from here: GPU 0, 1 of w1.example, GPU 0 of w2.example"
    )
    assert found["evidence"]["executors"] == ["GPU 0, 1 of w1.example", "GPU 0 of w2.example"]
    assert found["diagnosis"] is None


def test_executors_on_this_machine_are_as_they_were_measured():
    assert judge(YES, "1", {"127.0.0.1": ["0"]}, True, CLUSTER)["line"] == YES["line"]
    assert judge(NO, "1", {"127.0.0.1": ["0"]}, True, CLUSTER)["line"] == NO["line"]
    partly = judge(YES, "1", {"127.0.0.1": ["0"], "w1.example": ["0"]}, True, CLUSTER)
    assert (partly["used"], partly["line"]) == ("yes", YES["line"] + "; not measured: GPU 0 of w1.example")


def test_a_driver_that_used_a_gpu_has_used_it():
    found = judge(YES, "1", {}, True, CLUSTER)
    assert (found["used"], found["reason"]) == ("yes", "no executor received a GPU")


def test_a_script_that_never_started_used_none():
    assert judge(None, "1", {}, False, CLUSTER)["line"] == "GPU used: no – the script was not started"


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("localhost", True), (socket.gethostname(), True), ("192.0.2.77", False), ("w1", False)],
)
def test_whether_an_executor_is_on_this_machine(host, here):
    assert is_here(host) is here


def test_an_executor_and_its_workers_are_the_runs_by_the_application(tmp_path):
    """A worker of Spark, its executor, and a Python below that; another application's executor beside it."""
    words = {
        70: ["java", "Worker"],
        71: ["java", "--app-id", "app-1"],
        72: ["python"],
        73: ["java", "--app-id", "app-2"],
    }
    parents = {70: 1, 71: 70, 72: 71, 73: 70}
    for pid, command in words.items():
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "cmdline").write_text("\0".join(command) + "\0")
        (folder / "stat").write_text(f"{pid} (x) S {parents[pid]} " + " ".join(["0"] * 17) + " 5 0")
    table = Processes(str(tmp_path))
    run = Owner("demo", "/s/runs/demo", [20], application=lambda: "app-1")
    assert [owner_of(pid, [run], table) for pid in (70, 71, 72, 73)] == [None, "demo", "demo", None]
    assert owner_of(71, [Owner("demo", "/s/runs/demo", [20])], table) is None
