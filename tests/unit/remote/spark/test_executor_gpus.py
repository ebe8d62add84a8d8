"""GPU verdicts that include Spark executors."""

from __future__ import annotations

import socket

import pytest

from mlworkbench.remote.gpus.process_owner import Owner, ProcessTable, find_owner
from mlworkbench.remote.spark.executor_gpus import executor_verdict, is_this_machine, requested_amount

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


def test_requested_amount_per_executor():
    assert requested_amount(SPEC, {}) == "2"
    assert requested_amount(SPEC, {"spark.executor.resource.gpu.amount": "1"}) == "1", (
        "the setting of the application takes precedence"
    )
    assert requested_amount({"commands": [{"argv": ["python"]}]}, {}) is None
    assert requested_amount({"commands": [{"argv": ["python"]}]}, {"spark.executor.resource.gpu.amount": "0"}) is None


@pytest.mark.parametrize("verdict", [None, NO])
def test_requested_but_not_received_is_no_with_cause_and_remedy(verdict):
    result = executor_verdict(verdict, "1", {}, True, CLUSTER)
    assert (result["used"], result["line"]) == ("no", "GPU used: no – no executor received a GPU")
    assert result["diagnosis"]["cause"] == "spark.executor.resource.gpu.amount is 1, but no executor received a GPU"
    assert "spark.worker.resource.gpu.discoveryScript" in result["diagnosis"]["remedy"]
    assert result["asked"] == "spark.executor.resource.gpu.amount 1"


def test_unread_events_make_the_verdict_unknown():
    result = executor_verdict(None, "1", None, True, CLUSTER)
    assert result["used"] == "unknown" and "Spark's events were not read" in result["line"] and not result["diagnosis"]
    assert executor_verdict(YES, "1", None, True, CLUSTER)["line"] == YES["line"]


def test_remedy_for_a_local_master():
    assert "Gpus in the run configuration" in executor_verdict(None, "1", {}, True, "local[*]")["diagnosis"]["remedy"]


@pytest.mark.parametrize("verdict", [None, NO])
def test_executors_on_other_machines_are_unknown(verdict):
    result = executor_verdict(verdict, "1", {"w1.example": ["0", "1"], "w2.example": ["0"]}, True, CLUSTER)
    assert result["used"] == "unknown"
    assert result["reason"] == (
        "executors received GPUs that cannot be measured from here: GPU 0, 1 of w1.example, GPU 0 of w2.example"
    )
    assert result["evidence"]["executors"] == ["GPU 0, 1 of w1.example", "GPU 0 of w2.example"]
    assert result["diagnosis"] is None


def test_executors_on_this_machine_are_measured():
    assert executor_verdict(YES, "1", {"127.0.0.1": ["0"]}, True, CLUSTER)["line"] == YES["line"]
    assert executor_verdict(NO, "1", {"127.0.0.1": ["0"]}, True, CLUSTER)["line"] == NO["line"]
    partly = executor_verdict(YES, "1", {"127.0.0.1": ["0"], "w1.example": ["0"]}, True, CLUSTER)
    assert (partly["used"], partly["line"]) == ("yes", YES["line"] + "; not measured: GPU 0 of w1.example")


def test_a_driver_that_used_a_gpu_counts():
    result = executor_verdict(YES, "1", {}, True, CLUSTER)
    assert (result["used"], result["reason"]) == ("yes", "no executor received a GPU")


def test_a_script_that_was_not_started():
    assert executor_verdict(None, "1", {}, False, CLUSTER)["line"] == "GPU used: no – the script was not started"


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), (socket.gethostname(), True), ("192.0.2.77", False), ("w1", False)],
)
def test_is_this_machine(host, expected):
    assert is_this_machine(host) is expected


def test_executor_processes_belong_to_the_run_of_their_application(tmp_path):
    """A Spark worker, its executor with a Python child, and an executor of another application."""
    commands = {
        70: ["java", "Worker"],
        71: ["java", "--app-id", "app-1"],
        72: ["python"],
        73: ["java", "--app-id", "app-2"],
    }
    parents = {70: 1, 71: 70, 72: 71, 73: 70}
    for pid, command in commands.items():
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "cmdline").write_text("\0".join(command) + "\0")
        (folder / "stat").write_text(f"{pid} (x) S {parents[pid]} " + " ".join(["0"] * 17) + " 5 0")
    table = ProcessTable(str(tmp_path))
    run = Owner("demo", "/s/runs/demo", [20], application=lambda: "app-1")
    assert [find_owner(pid, [run], table) for pid in (70, 71, 72, 73)] == [None, "demo", "demo", None]
    assert find_owner(71, [Owner("demo", "/s/runs/demo", [20])], table) is None
