"""What a Spark application tells of itself, from recorded event logs of Spark 3.5 and 4, and from hostile ones."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.remote.companions import spark as watch
from mlworkbench.remote.companions.spark import Spark
from mlworkbench.remote.journal import Journal
from mlworkbench.remote.shared import endings
from mlworkbench.remote.shared.failure import failure, text_of
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.remote.spark import eventlog
from mlworkbench.remote.spark.application import Application
from mlworkbench.remote.spark.eventlog import EventLog
from mlworkbench.remote.spark.page import Page
from tests.machines.network import wait_until

RECORDED = Path(__file__).parent / "recorded"
LOST, FAILED, FAILED3, SKIPPED = (
    (RECORDED / f"{name}.events").read_bytes()
    for name in ("spark4-executor-lost", "spark4-task-failed", "spark3-task-failed", "spark4-skipped-stage")
)
THREE = "ValueError: number three is bad (fail.py:7)"


class Watched:
    """A run folder with a Spark application in it."""

    def __init__(self, folder: Path) -> None:
        self.run = RunFolder(str(folder))
        self.run.work = "/project"  # as recorded
        self.secrets: list[str] = []
        os.makedirs(self.run.spark)
        self.take_over()

    def take_over(self) -> None:
        """Another supervisor goes on."""
        self.watch = Spark(self.run, {"companions": {"spark": {"deploy": "client"}}}, Journal(self.run), self._mask)

    def _mask(self, text: str) -> str:
        for one in self.secrets:
            text = text.replace(one, "***")
        return text

    def write(self, data: bytes, app: str = "app-1", number: int = 1) -> Path:
        folder = Path(self.run.spark) / f"eventlog_v2_{app}"
        folder.mkdir(exist_ok=True)
        path = folder / f"events_{number}_{app}"
        with path.open("ab") as file:
            file.write(data)
        return path

    def look(self, times: int = 3) -> None:
        for _ in range(times):
            self.watch._next = self.watch._next_tale = self.watch._next_note = 0.0
            self.watch.tick(None)

    def told(self, kind: str) -> list[dict]:
        events = map(json.loads, Path(self.run.events).read_text().splitlines())
        return [event["data"] for event in events if event["kind"] == kind]

    def judge(self, log: str, code: int | None = 1, signal: int | None = None) -> tuple[str, str]:
        Path(self.run.log).write_text(log)
        ending, reason = self.watch.explain(endings.FAILED, "what the log says", {"code": code, "signal": signal})
        return ending, text_of(reason)


@pytest.fixture
def run(tmp_path):
    return Watched(tmp_path / "r")


def event(name: str, **facts: object) -> bytes:
    return json.dumps({"Event": f"SparkListener{name}", **facts}, separators=(",", ":")).encode() + b"\n"


def parts(whole: bytes, count: int) -> list[bytes]:
    size = len(whole) // count + 1
    return [whole[at : at + size] for at in range(0, len(whole), size)]


# -- what it comes to ----------------------------------------------------------------------------------


def test_an_application_is_told_with_its_progress(run):
    run.write(SKIPPED)
    run.look()
    (facts,) = run.told("spark")
    assert facts["app"] == "local-1794788588402"
    assert (facts["version"], facts["number"], facts["ui"]) == ("4.3.0", 1, None)
    assert facts["events"] == run.run.spark
    last = run.told("spark_progress")[-1]
    assert last["jobs"] == {"total": 3, "done": 3, "failed": 0}
    assert last["stages"] == {"done": 4, "total": 4, "failed": 0}, "one was skipped, and counts in neither"
    assert last["tasks"] == {"done": 11, "total": 11, "failed": 0}
    assert last["ended"] is True


def test_a_lost_executor_is_told_with_its_reason(run):
    run.write(LOST)
    run.look()
    (trouble,) = run.told("spark_trouble")
    assert (trouble["what"], trouble["executor"], trouble["host"]) == ("executor", "0", "127.0.0.1")
    assert trouble["reason"] == "Command exited with code 137"
    last = run.told("spark_progress")[-1]
    assert last["executors"] == {"now": 1, "most": 2, "lost": 1}
    assert last["tasks"] == {"done": 6, "total": 6, "failed": 1}
    assert last["members"] == [{"host": "127.0.0.1", "cores": 1, "gpus": [], "executor": "1"}]


@pytest.mark.parametrize("recorded", [FAILED, FAILED3], ids=["4", "3.5"])
def test_a_task_that_fails_is_told_with_the_line_of_the_users_code(run, recorded):
    run.write(recorded)
    run.look()
    task, stage = run.told("spark_trouble")
    assert (task["what"], task["stage"], task["reason"]) == ("task", 2, THREE)
    assert (stage["what"], stage["name"], stage["reason"]) == ("stage", "count at fail.py:9", THREE)
    assert run.told("spark_progress")[-1]["stages"] == {"done": 2, "total": 3, "failed": 1}


def test_a_reason_is_told_without_the_secrets(run):
    run.secrets = ["number three"]
    run.write(FAILED)
    run.look()
    assert [one["reason"] for one in run.told("spark_trouble")] == ["ValueError: *** is bad (fail.py:7)"] * 2


def test_the_first_losses_are_told_and_the_others_counted(run):
    run.write(event("ApplicationStart", **{"App ID": "app-1"}))
    for number in range(30):
        info = {"Host": "h", "Total Cores": 1, "Resources": {"gpu": {"name": "gpu", "addresses": ["0"]}}}
        run.write(event("ExecutorAdded", **{"Executor ID": str(number), "Executor Info": info}))
    run.look()
    for number in range(20):
        run.write(event("ExecutorRemoved", **{"Executor ID": str(number), "Removed Reason": "worker lost"}))
    run.write(event("ExecutorRemoved", **{"Executor ID": "20", "Removed Reason": "Executor killed by driver."}))
    run.look()
    assert len(run.told("spark_trouble")) == 5
    assert run.told("spark_progress")[-1]["executors"] == {"now": 9, "most": 30, "lost": 20}
    assert run.told("spark_progress")[-1]["members"][0]["gpus"] == ["0"]


def test_a_stage_that_is_done_again_counts_once():
    application = Application("/project")
    infos = [{"Stage ID": one, "Stage Attempt ID": 0, "Number of Tasks": 2} for one in (0, 1)]
    application.feed(event("JobStart", **{"Job ID": 0, "Stage Infos": infos})[:-1])
    for stage, attempt, why in ((0, 0, None), (1, 0, "FetchFailed: gone"), (0, 1, None), (1, 1, None)):
        info = {"Stage ID": stage, "Stage Attempt ID": attempt, "Number of Tasks": 2, "Stage Name": "s"}
        application.feed(event("StageSubmitted", **{"Stage Info": info}))
        info.update({"Failure Reason": why} if why else {})
        application.feed(event("StageCompleted", **{"Stage Info": info}))
    assert application.progress()["stages"] == {"done": 2, "total": 2, "failed": 1}


# -- as it comes ---------------------------------------------------------------------------------------


def test_jobs_without_number_take_no_memory_without_end(run):
    stages = [{"Stage ID": n, "Number of Tasks": 1, "Parent IDs": list(range(200))} for n in range(3000)]
    for job in range(4):
        run.watch.application.feed(event("JobStart", **{"Job ID": job, "Stage Infos": stages}))
    data = run.watch.application.data
    assert data["jobs"]["total"] == 4 and len(json.dumps(data)) < 2_000_000


def test_half_lines_wait_for_their_other_half(run):
    for part in parts(FAILED, 40):
        run.write(part)
        run.look(1)
    run.look()
    assert run.told("spark_progress")[-1]["tasks"]["done"] == 9
    assert len(run.told("spark_trouble")) == 2


def test_rolled_files_are_read_in_order_and_the_old_ones_deleted(run, monkeypatch):
    monkeypatch.setattr(eventlog, "KEPT", 3 * len(SKIPPED) // 20)
    lines = SKIPPED.splitlines(keepends=True)
    files = [run.write(line, number=number) for number, line in enumerate(lines, 1)]
    run.look(3 * len(lines))
    assert run.told("spark_progress")[-1]["tasks"]["done"] == 11
    assert not files[0].exists()
    assert files[-1].exists()


def test_the_one_file_of_an_application_without_rolling_is_read_too(run):
    path = Path(run.run.spark) / "local-1794789322198.inprogress"
    half = len(FAILED3) // 2
    path.write_bytes(FAILED3[:half])
    run.look()
    with path.open("ab") as file:
        file.write(FAILED3[half:])
    path.rename(path.with_suffix(""))
    run.look()
    assert run.told("spark_progress")[-1]["jobs"] == {"total": 2, "done": 1, "failed": 1}


def test_a_second_application_of_the_same_run_is_told_as_such(run):
    run.write(SKIPPED, "app-1")
    run.look()
    run.write(LOST, "app-2")
    run.look()
    assert [one["number"] for one in run.told("spark")] == [1, 2]
    assert run.told("spark_progress")[-1]["jobs"] == {"total": 2, "done": 2, "failed": 0}


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "killed before the note"])
@pytest.mark.parametrize("at", [5, 20, 38])
def test_who_takes_over_tells_nothing_twice_and_loses_nothing(run, noted, at):
    lines = FAILED.splitlines(keepends=True)
    run.write(b"".join(lines[:at]))
    run.look()
    if not noted:
        os.unlink(run.run.spark + ".json")
    run.take_over()
    run.write(b"".join(lines[at:]))
    run.look()
    assert [one["number"] for one in run.told("spark_trouble")] == [1, 2]
    assert run.told("spark_progress")[-1]["tasks"] == {"done": 9, "total": 9, "failed": 1}


def test_progress_is_told_ever_more_rarely(run, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: clock[0])
    run.write(event("ApplicationStart", **{"App ID": "app-1"}))
    for number in range(24 * 3600 // 15):
        if number % 2 == 0:
            run.write(event("JobStart", **{"Job ID": number, "Stage Infos": []}))
        run.watch.tick(None)
        clock[0] += 15.0
    assert len(run.told("spark_progress")) < 2000
    run.write(event("ApplicationEnd"))
    run.watch.tick(None)
    assert run.told("spark_progress")[-1]["ended"], "the last one is told at once"


# -- what a script may put there -----------------------------------------------------------------------


def test_no_link_is_followed(run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(LOST)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "events_1_app-2").write_bytes(LOST)
    inner = Path(run.run.spark) / "eventlog_v2_app-1"
    inner.mkdir()
    (inner / "events_1_app-1").symlink_to(elsewhere)
    os.mkfifo(inner / "events_2_app-1")
    (Path(run.run.spark) / "eventlog_v2_app-2").symlink_to(folder)
    (Path(run.run.spark) / "app-3").symlink_to(elsewhere)
    run.look(10)
    assert run.told("spark") == run.told("spark_progress") == []


def test_a_line_of_many_megabytes_is_passed_over(run):
    lines = SKIPPED.splitlines(keepends=True)
    run.write(lines[0] + lines[1] + b'{"Event":"SparkListenerJobStart",' + b"x" * (2 * eventlog.LONGEST) + b"\n")
    run.write(b"".join(lines[2:]))
    run.look(40)
    assert run.told("spark_progress")[-1]["tasks"]["done"] == 11


@pytest.mark.parametrize("what", ["vanishes", "shrinks"])
def test_a_file_that_vanishes_or_shrinks_ends_nothing(run, what):
    path = run.write(SKIPPED[: len(SKIPPED) // 2])
    run.look()
    if what == "vanishes":
        path.unlink()
    else:
        path.write_bytes(b"")
    run.look()
    run.write(b"".join(SKIPPED.splitlines(keepends=True)[-1:]), number=2)
    run.look(5)
    assert run.told("spark_progress")[-1]["ended"]


NONSENSE = st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.sampled_from([[], {}, [[1]], [{}], "0"]))


@given(st.lists(st.sampled_from(b"".join([LOST, FAILED]).splitlines()), max_size=8), st.data())
def test_nonsense_changes_nothing_but_the_counts(lines, data):
    """Whole events in any order, any number of times, and with anything in the place of their values."""
    application = Application("/project")
    for line in lines:
        told = json.loads(line)
        name = data.draw(st.sampled_from(list(told)[1:] or ["x"]))
        inner = told.get(name)
        if isinstance(inner, dict) and inner:
            inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(NONSENSE)
        else:
            told[name] = data.draw(NONSENSE)
        application.feed(json.dumps(told, separators=(",", ":")).encode())
        application.feed(line[: data.draw(st.integers(0, len(line)))])
    progress = application.progress()
    assert all(count >= 0 for name in ("jobs", "stages", "tasks") for count in progress[name].values())
    json.dumps(application.data)


# -- Spark's page --------------------------------------------------------------------------------------


def serve(answer: bytes) -> tuple[socket.socket, int]:
    server = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        while True:
            try:
                one, _ = server.accept()
            except OSError:
                return
            with one:
                one.recv(1000)
                one.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + answer)

    threading.Thread(target=work, daemon=True).start()
    return server, server.getsockname()[1]


def test_the_page_is_told_when_it_answers_for_this_application():
    server, port = serve(b'[ {\n  "id" : "app-1",\n  "name" : "r" } ]')
    try:
        found: list[str] = []
        page = Page("app-1", port - 1, "here")  # Spark takes the next one
        wait_until(lambda: bool(found.append(page.look()) or found[-1]), "the page")
        assert found[-1] == f"http://here:{port}"
    finally:
        server.close()


STARTING = {"App Name": "r", "App ID": "app-1", "Timestamp": 1, "User": "u"}


@pytest.mark.parametrize("port", ["0", "65535", "²", "99999", "x"])
def test_a_port_that_is_none_ends_nothing(run, port, monkeypatch):
    monkeypatch.setattr("mlworkbench.remote.companions.spark.PAGE", 0.0)
    settings = {"spark.ui.port": port, "spark.master": "local[2]"}
    run.write(event("EnvironmentUpdate", **{"Spark Properties": settings}))
    run.write(event("ApplicationStart", **STARTING))
    run.look(5)
    assert run.told("spark")[-1]["ui"] is None


@pytest.mark.parametrize(("master", "host"), [("local[2]", "127.0.0.1"), ("spark://h:1", socket.gethostname())])
def test_the_page_is_told_by_the_name_that_it_listens_on(run, master, host, monkeypatch):
    monkeypatch.setattr("mlworkbench.remote.companions.spark.PAGE", 0.0)
    server, port = serve(b'[ { "id" : "app-1" } ]')
    try:
        settings = {"spark.ui.port": str(port), "spark.master": master}
        run.write(event("EnvironmentUpdate", **{"Spark Properties": settings}))
        run.write(event("ApplicationStart", **STARTING))

        def address() -> str | None:
            run.look(1)
            return run.told("spark")[-1]["ui"] if run.told("spark") else None

        wait_until(lambda: address() is not None, "the page")
        assert address() == f"http://{host}:{port}"
    finally:
        server.close()


def test_the_page_of_another_application_is_not_told(monkeypatch):
    server, port = serve(b'[ { "id" : "app-2" } ]')
    monkeypatch.setattr("mlworkbench.remote.spark.page._PAUSE", 0.0)
    try:
        found: list[str | None] = []
        page = Page("app-1", port, "here")
        wait_until(lambda: bool(found.append(page.look()) or page.silent), "giving up")
        assert set(found) == {None}
    finally:
        server.close()


# -- why it failed -------------------------------------------------------------------------------------

STARTED = "26/11/16 00:34:25 INFO SparkContext: Running Spark version 4.3.0\n"
STOPPED = "26/11/16 00:35:25 INFO ShutdownHookManager: Deleting directory /tmp/spark-2a95\n"
OF_A_TASK = (
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


def test_exit_78_with_a_refusal_could_not_start(run):
    known = failure("no-spark", "there is no Java", "install Java 17", "no-spark")
    Path(run.run.spark, "failure.json").write_text(json.dumps(known))
    assert run.watch.explain(endings.FAILED, "x", {"code": 78, "signal": None}) == (endings.COULD_NOT_START, known)
    assert run.watch.explain(endings.FAILED, "x", {"code": 1, "signal": None})[0] == endings.FAILED, (
        "of another exit code"
    )


@pytest.mark.parametrize("text", ["", "[]", '{"code": 1}', '{"code": "x", "message": ""}', "[" * 10**5])
def test_a_refusal_that_is_none_is_passed_over(run, text):
    Path(run.run.spark, "failure.json").write_text(text)
    assert run.judge("tired\n", 78)[0] == endings.FAILED


def test_exit_78_of_a_script_is_its_own_affair(run):
    assert run.judge("tired\n", 78) == (endings.FAILED, "exit code 78; last line: tired")


def test_a_driver_that_is_killed_is_lost(run):
    run.write(b"".join(SKIPPED.splitlines(keepends=True)[:-5]))
    run.look()
    ending, cause = run.judge(STARTED, None, 9)
    assert ending == endings.FAILED
    assert cause == "the Spark driver was lost: killed by signal 9 (SIGKILL); 3 of 4 stages completed"


def test_a_python_that_is_killed_beside_its_jvm_is_named(run):
    _, cause = run.judge(STARTED + STOPPED, 137)
    assert cause == "the Python process of the Spark driver was lost: killed by signal 9 (SIGKILL)"


def test_a_driver_that_was_asked_to_end_is_no_lost_python(run):
    _, cause = run.judge(STARTED + STOPPED, 143)
    assert cause == "the Spark driver was lost: killed by signal 15 (SIGTERM)"


def test_any_other_exit_code_is_the_scripts(run):
    assert run.judge("enough\n", 150)[1] == "exit code 150; last line: enough"


@pytest.mark.parametrize("recorded", [FAILED, FAILED3], ids=["4", "3.5"])
def test_an_exception_in_a_task_is_told_with_its_line_and_its_stage(run, recorded):
    run.write(recorded)
    run.look()
    _, cause = run.judge(STARTED + PY4J % "org.apache.spark.SparkException: Job aborted" + STOPPED)
    assert cause == THREE + ", in a task of stage 2 (count at fail.py:9)"


def test_what_failed_on_the_way_is_not_the_cause(run):
    own = "Traceback (most recent call last):\n  File \"/project/fail.py\", line 12, in <module>\nKeyError: 'missing'\n"
    _, cause = run.judge(STARTED + own + OF_A_TASK + STOPPED)
    assert cause == "KeyError: 'missing' (fail.py:12)"


def test_where_the_traceback_only_says_that_java_failed_spark_says_more(run):
    reason = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times: ExecutorLostFailure (executor 3)"
    run.write(event("ApplicationStart", **{"App ID": "app-1"}))
    run.write(event("JobEnd", **{"Job ID": 0, "Job Result": {"Result": "JobFailed", "Exception": {"Message": reason}}}))
    run.look()
    _, cause = run.judge(STARTED + PY4J % "org.apache.spark.SparkException: x" + STOPPED)
    assert cause.startswith("py4j.protocol.Py4JJavaError: An error occurred while calling o33.count. (fail.py:9); ")
    assert cause.endswith("; Spark: " + reason)


def test_what_java_said_without_any_stage(run):
    _, cause = run.judge(STARTED + PY4J % "java.io.IOException: no such bucket" + STOPPED)
    assert cause.endswith(" (fail.py:9); Spark: java.io.IOException: no such bucket")


def test_spark_that_gives_up_by_itself_is_quoted(run):
    said = "Application has been killed. Reason: All masters are gone"
    _, cause = run.judge(STARTED + f"26/11/16 00:35:20 ERROR StandaloneSchedulerBackend: {said}\n" + STOPPED)
    assert cause == f"exit code 1; the log is empty; Spark: {said}"


def test_a_driver_out_of_memory_is_named_with_the_setting(run):
    _, cause = run.judge(STARTED + PY4J % "java.lang.OutOfMemoryError: Java heap space" + STOPPED)
    assert "; the driver ran out of memory (java.lang.OutOfMemoryError: Java heap space); hint: raise" in cause
    assert cause.endswith("spark.driver.memory in aml_config/spark_dependencies.yml")


def test_without_the_secrets_only_the_signal_is_told(run):
    run.watch._mask = lambda text: ""
    run.write(FAILED)
    run.look()
    assert run.told("spark_trouble")[0]["reason"] is None
    assert run.judge(STARTED, 1) == (endings.FAILED, "what the log says")


def test_an_event_log_that_knows_nothing_yet_is_empty(tmp_path):
    assert EventLog(str(tmp_path / "missing")).read() == []
