"""Monitoring of Spark applications, with recorded event logs of Spark 3.5 and 4, and hostile ones."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.remote.companions import spark_monitor as module
from mlworkbench.remote.companions.spark_monitor import SparkMonitor
from mlworkbench.remote.journal import Journal
from mlworkbench.remote.shared import run_endings
from mlworkbench.remote.shared.failure import failure, text_of
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.remote.spark import event_log
from mlworkbench.remote.spark.application import Application
from mlworkbench.remote.spark.driver_address import DriverPage
from mlworkbench.remote.spark.event_log import EventLog
from tests.machines.network import wait_until

RECORDED = Path(__file__).parents[2] / "recorded"
LOST, FAILED, FAILED3, SKIPPED = (
    (RECORDED / f"{name}.events").read_bytes()
    for name in ("spark4-executor-lost", "spark4-task-failed", "spark3-task-failed", "spark4-skipped-stage")
)
THREE = "ValueError: number three is bad (fail.py:7)"


class MonitoredRun:
    """A run folder, and the monitor of its Spark application."""

    def __init__(self, folder: Path) -> None:
        self.run = RunFolder(str(folder))
        self.run.work = "/project"  # the path in the recorded event logs
        self.secrets: list[str] = []
        os.makedirs(self.run.spark)
        self.take_over()

    def take_over(self) -> None:
        """Create a new monitor, as another supervisor does."""
        self.monitor = SparkMonitor(
            self.run, {"companions": {"spark": {"deploy": "client"}}}, Journal(self.run), self._mask
        )

    def _mask(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def write(self, data: bytes, app: str = "app-1", number: int = 1) -> Path:
        folder = Path(self.run.spark) / f"eventlog_v2_{app}"
        folder.mkdir(exist_ok=True)
        path = folder / f"events_{number}_{app}"
        with path.open("ab") as file:
            file.write(data)
        return path

    def tick(self, times: int = 3) -> None:
        for _ in range(times):
            self.monitor._next = self.monitor._next_progress = self.monitor._next_marker = 0.0
            self.monitor.tick(None)

    def recorded(self, kind: str) -> list[dict]:
        events = map(json.loads, Path(self.run.events).read_text().splitlines())
        return [event["data"] for event in events if event["kind"] == kind]

    def explain(self, log: str, code: int | None = 1, signal: int | None = None) -> tuple[str, str]:
        Path(self.run.log).write_text(log)
        ending, reason = self.monitor.explain(run_endings.FAILED, "what the log says", {"code": code, "signal": signal})
        return ending, text_of(reason)


@pytest.fixture
def run(tmp_path):
    return MonitoredRun(tmp_path / "r")


def event(name: str, **facts: object) -> bytes:
    return json.dumps({"Event": f"SparkListener{name}", **facts}, separators=(",", ":")).encode() + b"\n"


def split(data: bytes, count: int) -> list[bytes]:
    size = len(data) // count + 1
    return [data[start : start + size] for start in range(0, len(data), size)]


# -- results -----------------------------------------------------------------------------------------


def test_application_and_progress_are_recorded(run):
    run.write(SKIPPED)
    run.tick()
    (facts,) = run.recorded("spark")
    assert facts["app"] == "local-1794788588402"
    assert (facts["version"], facts["number"], facts["ui"]) == ("4.3.0", 1, None)
    assert facts["events"] == run.run.spark
    last = run.recorded("spark_progress")[-1]
    assert last["jobs"] == {"total": 3, "done": 3, "failed": 0}
    assert last["stages"] == {"done": 4, "total": 4, "failed": 0}, "a skipped stage does not count"
    assert last["tasks"] == {"done": 11, "total": 11, "failed": 0}
    assert last["ended"] is True


def test_lost_executor_is_recorded_with_its_reason(run):
    run.write(LOST)
    run.tick()
    (trouble,) = run.recorded("spark_trouble")
    assert (trouble["what"], trouble["executor"], trouble["host"]) == ("executor", "0", "127.0.0.1")
    assert trouble["reason"] == "Command exited with code 137"
    last = run.recorded("spark_progress")[-1]
    assert last["executors"] == {"now": 1, "most": 2, "lost": 1}
    assert last["tasks"] == {"done": 6, "total": 6, "failed": 1}
    assert last["members"] == [{"host": "127.0.0.1", "cores": 1, "gpus": [], "executor": "1"}]


@pytest.mark.parametrize("recorded", [FAILED, FAILED3], ids=["4", "3.5"])
def test_failed_task_is_recorded_with_the_users_line(run, recorded):
    run.write(recorded)
    run.tick()
    task, stage = run.recorded("spark_trouble")
    assert (task["what"], task["stage"], task["reason"]) == ("task", 2, THREE)
    assert (stage["what"], stage["name"], stage["reason"]) == ("stage", "count at fail.py:9", THREE)
    assert run.recorded("spark_progress")[-1]["stages"] == {"done": 2, "total": 3, "failed": 1}


def test_reason_is_recorded_without_secrets(run):
    run.secrets = ["number three"]
    run.write(FAILED)
    run.tick()
    assert [trouble["reason"] for trouble in run.recorded("spark_trouble")] == [
        "ValueError: *** is bad (fail.py:7)"
    ] * 2


def test_first_losses_are_recorded_and_others_counted(run):
    run.write(event("ApplicationStart", **{"App ID": "app-1"}))
    for number in range(30):
        info = {"Host": "h", "Total Cores": 1, "Resources": {"gpu": {"name": "gpu", "addresses": ["0"]}}}
        run.write(event("ExecutorAdded", **{"Executor ID": str(number), "Executor Info": info}))
    run.tick()
    for number in range(20):
        run.write(event("ExecutorRemoved", **{"Executor ID": str(number), "Removed Reason": "worker lost"}))
    run.write(event("ExecutorRemoved", **{"Executor ID": "20", "Removed Reason": "Executor killed by driver."}))
    run.tick()
    assert len(run.recorded("spark_trouble")) == 5
    assert run.recorded("spark_progress")[-1]["executors"] == {"now": 9, "most": 30, "lost": 20}
    assert run.recorded("spark_progress")[-1]["members"][0]["gpus"] == ["0"]


def test_repeated_stage_counts_once():
    application = Application("/project")
    infos = [{"Stage ID": stage, "Stage Attempt ID": 0, "Number of Tasks": 2} for stage in (0, 1)]
    application.feed(event("JobStart", **{"Job ID": 0, "Stage Infos": infos})[:-1])
    for stage, attempt, reason in ((0, 0, None), (1, 0, "FetchFailed: gone"), (0, 1, None), (1, 1, None)):
        info = {"Stage ID": stage, "Stage Attempt ID": attempt, "Number of Tasks": 2, "Stage Name": "s"}
        application.feed(event("StageSubmitted", **{"Stage Info": info}))
        info.update({"Failure Reason": reason} if reason else {})
        application.feed(event("StageCompleted", **{"Stage Info": info}))
    assert application.progress()["stages"] == {"done": 2, "total": 2, "failed": 1}


# -- reading -------------------------------------------------------------------------------------------


def test_large_jobs_take_limited_memory(run):
    stages = [{"Stage ID": n, "Number of Tasks": 1, "Parent IDs": list(range(200))} for n in range(3000)]
    for job in range(4):
        run.monitor.application.feed(event("JobStart", **{"Job ID": job, "Stage Infos": stages}))
    data = run.monitor.application.data
    assert data["jobs"]["total"] == 4 and len(json.dumps(data)) < 2_000_000


def test_partial_lines_are_completed(run):
    for part in split(FAILED, 40):
        run.write(part)
        run.tick(1)
    run.tick()
    assert run.recorded("spark_progress")[-1]["tasks"]["done"] == 9
    assert len(run.recorded("spark_trouble")) == 2


def test_rolled_files_are_read_in_order_and_deleted(run, monkeypatch):
    monkeypatch.setattr(event_log, "MAX_KEPT", 3 * len(SKIPPED) // 20)
    lines = SKIPPED.splitlines(keepends=True)
    files = [run.write(line, number=number) for number, line in enumerate(lines, 1)]
    run.tick(3 * len(lines))
    assert run.recorded("spark_progress")[-1]["tasks"]["done"] == 11
    assert not files[0].exists()
    assert files[-1].exists()


def test_single_event_file_is_read(run):
    path = Path(run.run.spark) / "local-1794789322198.inprogress"
    half = len(FAILED3) // 2
    path.write_bytes(FAILED3[:half])
    run.tick()
    with path.open("ab") as file:
        file.write(FAILED3[half:])
    path.rename(path.with_suffix(""))
    run.tick()
    assert run.recorded("spark_progress")[-1]["jobs"] == {"total": 2, "done": 1, "failed": 1}


def test_second_application_of_a_run(run):
    run.write(SKIPPED, "app-1")
    run.tick()
    run.write(LOST, "app-2")
    run.tick()
    assert [facts["number"] for facts in run.recorded("spark")] == [1, 2]
    assert run.recorded("spark_progress")[-1]["jobs"] == {"total": 2, "done": 2, "failed": 0}


@pytest.mark.parametrize("has_marker", [True, False], ids=["marker", "killed before the marker"])
@pytest.mark.parametrize("count", [5, 20, 38])
def test_successor_repeats_and_loses_nothing(run, has_marker, count):
    lines = FAILED.splitlines(keepends=True)
    run.write(b"".join(lines[:count]))
    run.tick()
    if not has_marker:
        os.unlink(run.run.spark + ".json")
    run.take_over()
    run.write(b"".join(lines[count:]))
    run.tick()
    assert [trouble["number"] for trouble in run.recorded("spark_trouble")] == [1, 2]
    assert run.recorded("spark_progress")[-1]["tasks"] == {"done": 9, "total": 9, "failed": 1}


def test_progress_is_recorded_less_often_over_time(run, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    run.write(event("ApplicationStart", **{"App ID": "app-1"}))
    for number in range(24 * 3600 // 15):
        if number % 2 == 0:
            run.write(event("JobStart", **{"Job ID": number, "Stage Infos": []}))
        run.monitor.tick(None)
        clock[0] += 15.0
    assert len(run.recorded("spark_progress")) < 2000
    run.write(event("ApplicationEnd"))
    run.monitor.tick(None)
    assert run.recorded("spark_progress")[-1]["ended"], "the last state is recorded at once"


# -- hostile files ------------------------------------------------------------------------------------


def test_links_are_not_followed(run, tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(LOST)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "events_1_app-2").write_bytes(LOST)
    inner = Path(run.run.spark) / "eventlog_v2_app-1"
    inner.mkdir()
    (inner / "events_1_app-1").symlink_to(outside)
    os.mkfifo(inner / "events_2_app-1")
    (Path(run.run.spark) / "eventlog_v2_app-2").symlink_to(folder)
    (Path(run.run.spark) / "app-3").symlink_to(outside)
    run.tick(10)
    assert run.recorded("spark") == run.recorded("spark_progress") == []


def test_huge_line_is_skipped(run):
    lines = SKIPPED.splitlines(keepends=True)
    run.write(lines[0] + lines[1] + b'{"Event":"SparkListenerJobStart",' + b"x" * (2 * event_log.MAX_LINE) + b"\n")
    run.write(b"".join(lines[2:]))
    run.tick(40)
    assert run.recorded("spark_progress")[-1]["tasks"]["done"] == 11


@pytest.mark.parametrize("what", ["vanishes", "shrinks"])
def test_vanished_or_truncated_file_does_not_end_monitoring(run, what):
    path = run.write(SKIPPED[: len(SKIPPED) // 2])
    run.tick()
    if what == "vanishes":
        path.unlink()
    else:
        path.write_bytes(b"")
    run.tick()
    run.write(b"".join(SKIPPED.splitlines(keepends=True)[-1:]), number=2)
    run.tick(5)
    assert run.recorded("spark_progress")[-1]["ended"]


INVALID_VALUE = st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.sampled_from([[], {}, [[1]], [{}], "0"]))


@given(st.lists(st.sampled_from(b"".join([LOST, FAILED]).splitlines()), max_size=8), st.data())
def test_invalid_values_only_change_counts(lines, data):
    """Feed events in any order, repeatedly, truncated, and with arbitrary values."""
    application = Application("/project")
    for line in lines:
        fields = json.loads(line)
        name = data.draw(st.sampled_from(list(fields)[1:] or ["x"]))
        inner = fields.get(name)
        if isinstance(inner, dict) and inner:
            inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(INVALID_VALUE)
        else:
            fields[name] = data.draw(INVALID_VALUE)
        application.feed(json.dumps(fields, separators=(",", ":")).encode())
        application.feed(line[: data.draw(st.integers(0, len(line)))])
    progress = application.progress()
    assert all(count >= 0 for name in ("jobs", "stages", "tasks") for count in progress[name].values())
    json.dumps(application.data)


# -- Spark's page --------------------------------------------------------------------------------------


def serve(body: bytes) -> tuple[socket.socket, int]:
    server = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + body)

    threading.Thread(target=work, daemon=True).start()
    return server, server.getsockname()[1]


def test_page_of_this_application_is_found():
    server, port = serve(b'[ {\n  "id" : "app-1",\n  "name" : "r" } ]')
    try:
        addresses: list[str] = []
        page = DriverPage("app-1", port - 1, "here")  # the configured port is in use, so Spark uses the next one
        wait_until(lambda: bool(addresses.append(page.poll()) or addresses[-1]), "the page")
        assert addresses[-1] == f"http://here:{port}"
    finally:
        server.close()


STARTING = {"App Name": "r", "App ID": "app-1", "Timestamp": 1, "User": "u"}


@pytest.mark.parametrize("port", ["0", "65535", "²", "99999", "x"])
def test_invalid_port_does_not_end_monitoring(run, port, monkeypatch):
    monkeypatch.setattr("mlworkbench.remote.companions.spark_monitor.PAGE_DELAY", 0.0)
    settings = {"spark.ui.port": port, "spark.master": "local[2]"}
    run.write(event("EnvironmentUpdate", **{"Spark Properties": settings}))
    run.write(event("ApplicationStart", **STARTING))
    run.tick(5)
    assert run.recorded("spark")[-1]["ui"] is None


@pytest.mark.parametrize(("master", "host"), [("local[2]", "127.0.0.1"), ("spark://h:1", socket.gethostname())])
def test_page_address_has_the_host_it_listens_on(run, master, host, monkeypatch):
    monkeypatch.setattr("mlworkbench.remote.companions.spark_monitor.PAGE_DELAY", 0.0)
    server, port = serve(b'[ { "id" : "app-1" } ]')
    try:
        settings = {"spark.ui.port": str(port), "spark.master": master}
        run.write(event("EnvironmentUpdate", **{"Spark Properties": settings}))
        run.write(event("ApplicationStart", **STARTING))

        def address() -> str | None:
            run.tick(1)
            return run.recorded("spark")[-1]["ui"] if run.recorded("spark") else None

        wait_until(lambda: address() is not None, "the page")
        assert address() == f"http://{host}:{port}"
    finally:
        server.close()


def test_page_of_another_application_is_ignored(monkeypatch):
    server, port = serve(b'[ { "id" : "app-2" } ]')
    monkeypatch.setattr("mlworkbench.remote.spark.driver_address._PAUSE", 0.0)
    try:
        addresses: list[str | None] = []
        page = DriverPage("app-1", port, "here")
        wait_until(lambda: bool(addresses.append(page.poll()) or page.gave_up), "giving up")
        assert set(addresses) == {None}
    finally:
        server.close()


# -- failures ----------------------------------------------------------------------------------------

STARTED = "26/11/16 00:34:25 INFO SparkContext: Running Spark version 4.3.0\n"
STOPPED = "26/11/16 00:35:25 INFO ShutdownHookManager: Deleting directory /tmp/spark-2a95\n"
TASK_ERROR = (
    "26/11/16 00:34:25 WARN TaskSetManager: Lost task 1.0 in stage 2.0 (TID 9) (localhost executor driver):"
    " org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "/project/other.py", line 3, in other\n    raise ValueError("on the way")\nValueError: on the way\n\n'
    "\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:572)\n"
)
PY4J = (
    'Traceback (most recent call last):\n  File "/project/fail.py", line 9, in <module>\n    print(rows.count())\n'
    "py4j.protocol.Py4JJavaError: An error occurred while calling o33.count.\n: %s\n"
    "\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)\n"
)


def test_exit_78_with_failure_file_could_not_start(run):
    written = failure("no-spark", "there is no Java", "install Java 17", "no-spark")
    Path(run.run.spark, "failure.json").write_text(json.dumps(written))
    assert run.monitor.explain(run_endings.FAILED, "x", {"code": 78, "signal": None}) == (
        run_endings.COULD_NOT_START,
        written,
    )
    assert run.monitor.explain(run_endings.FAILED, "x", {"code": 1, "signal": None})[0] == run_endings.FAILED, (
        "for another exit code"
    )


@pytest.mark.parametrize("text", ["", "[]", '{"code": 1}', '{"code": "x", "message": ""}', "[" * 10**5])
def test_invalid_failure_file_is_ignored(run, text):
    Path(run.run.spark, "failure.json").write_text(text)
    assert run.explain("tired\n", 78)[0] == run_endings.FAILED


def test_exit_78_of_a_script_is_an_ordinary_failure(run):
    assert run.explain("tired\n", 78) == (run_endings.FAILED, "exit code 78; last line: tired")


def test_killed_driver_is_lost(run):
    run.write(b"".join(SKIPPED.splitlines(keepends=True)[:-5]))
    run.tick()
    ending, cause = run.explain(STARTED, None, 9)
    assert ending == run_endings.FAILED
    assert cause == "the Spark driver was lost: killed by signal 9 (SIGKILL); 3 of 4 stages completed"


def test_killed_python_beside_its_jvm(run):
    _, cause = run.explain(STARTED + STOPPED, 137)
    assert cause == "the Python process of the Spark driver was lost: killed by signal 9 (SIGKILL)"


def test_terminated_driver(run):
    _, cause = run.explain(STARTED + STOPPED, 143)
    assert cause == "the Spark driver was lost: killed by signal 15 (SIGTERM)"


def test_other_exit_code_is_the_scripts(run):
    assert run.explain("enough\n", 150)[1] == "exit code 150; last line: enough"


@pytest.mark.parametrize("recorded", [FAILED, FAILED3], ids=["4", "3.5"])
def test_task_exception_has_line_and_stage(run, recorded):
    run.write(recorded)
    run.tick()
    _, cause = run.explain(STARTED + PY4J % "org.apache.spark.SparkException: Job aborted" + STOPPED)
    assert cause == THREE + ", in a task of stage 2 (count at fail.py:9)"


def test_retried_task_is_not_the_cause(run):
    traceback = (
        "Traceback (most recent call last):\n  File \"/project/fail.py\", line 12, in <module>\nKeyError: 'missing'\n"
    )
    _, cause = run.explain(STARTED + traceback + TASK_ERROR + STOPPED)
    assert cause == "KeyError: 'missing' (fail.py:12)"


def test_java_error_is_extended_by_sparks_reason(run):
    reason = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times: ExecutorLostFailure (executor 3)"
    run.write(event("ApplicationStart", **{"App ID": "app-1"}))
    run.write(event("JobEnd", **{"Job ID": 0, "Job Result": {"Result": "JobFailed", "Exception": {"Message": reason}}}))
    run.tick()
    _, cause = run.explain(STARTED + PY4J % "org.apache.spark.SparkException: x" + STOPPED)
    assert cause.startswith("py4j.protocol.Py4JJavaError: An error occurred while calling o33.count. (fail.py:9); ")
    assert cause.endswith("; Spark: " + reason)


def test_java_error_without_stage(run):
    _, cause = run.explain(STARTED + PY4J % "java.io.IOException: no such bucket" + STOPPED)
    assert cause.endswith(" (fail.py:9); Spark: java.io.IOException: no such bucket")


def test_message_of_spark_that_gives_up(run):
    message = "Application has been killed. Reason: All masters are gone"
    _, cause = run.explain(STARTED + f"26/11/16 00:35:20 ERROR StandaloneSchedulerBackend: {message}\n" + STOPPED)
    assert cause == f"exit code 1; the log is empty; Spark: {message}"


def test_driver_out_of_memory_names_the_setting(run):
    _, cause = run.explain(STARTED + PY4J % "java.lang.OutOfMemoryError: Java heap space" + STOPPED)
    assert "; the driver ran out of memory (java.lang.OutOfMemoryError: Java heap space); hint: raise" in cause
    assert cause.endswith("spark.driver.memory in aml_config/spark_dependencies.yml")


def test_unknown_secrets_hide_the_reason(run):
    run.monitor._mask = lambda text: ""
    run.write(FAILED)
    run.tick()
    assert run.recorded("spark_trouble")[0]["reason"] is None
    assert run.explain(STARTED, 1) == (run_endings.FAILED, "what the log says")


def test_missing_event_log_is_empty(tmp_path):
    assert EventLog(str(tmp_path / "missing")).read() == []
