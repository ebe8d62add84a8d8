"""``type: cluster``: a standalone master with two workers, from here and through an edge node; what breaks, breaks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.attaching import words
from tests.e2e.sparkling import HELPER, sparkling
from tests.machines.network import read, wait_until
from tests.machines.spark import PATIENCE

pytestmark = pytest.mark.timeout(400)
# Two tasks, one for each worker: each says where it is, and waits for the test's word. Tasks import from the project.
TASKS = """
import os, sys, time
import mlworkbench
from pyspark.sql import SparkSession

place = sys.argv[1]
context = SparkSession.builder.getOrCreate().sparkContext
print("application", context.applicationId, flush=True)

def task(number):
    import helper
    with open(os.path.join(place, "task-%d-%d" % (number, os.getpid())), "w") as file:
        file.write(os.getcwd())
    while not os.path.exists(os.path.join(place, "go")):
        time.sleep(0.05)
    return helper.twice(number)

try:
    total = sum(context.parallelize([3, 4], 2).map(task).collect())
except Exception:
    while "--stubborn" in sys.argv:
        time.sleep(0.05)
    raise
mlworkbench.log("total", total)
with open("outputs/total.txt", "w") as file:
    file.write(str(total))
print("total", total, flush=True)
"""


@pytest.fixture
def cluster(spark_cluster):
    spark_cluster.mend()
    return spark_cluster


@pytest.fixture
def project(user, spark, cluster) -> Path:
    """A cluster that is reached from here."""
    root = user.project("demo", tasks=TASKS, helper=HELPER)
    attached = user.mlw("computetarget", "attach", "cluster", "--name", "c", "--master", cluster.url, cwd=root)
    assert attached.code == 0, attached
    here = {"spark.driver.host": "127.0.0.1"}
    sparkling(root, "c", configuration=here, userManagedEnvironment="true", pythonLocation=str(spark.python))
    return root


@pytest.fixture
def meeting(tmp_path) -> Path:
    """Where the tasks of a job and the test meet."""
    folder = tmp_path / "meeting"
    folder.mkdir()
    return folder


class Job:
    """A submit that goes on in the background, up to the moment when both tasks wait."""

    def __init__(self, client: subprocess.Popen[bytes], meeting: Path) -> None:
        self.client, self.meeting = client, meeting
        self.seen: list[str] = []
        self.application = self._await(r"^application (app-\d+-\d+)$")
        wait_until(lambda: len(self.tasks()) == 2, "two tasks", PATIENCE)

    def _await(self, pattern: str) -> str:
        for line in self.client.stdout:
            self.seen.append(line.decode())
            found = re.search(pattern, self.seen[-1])
            if found:
                return found.group(1)
        raise AssertionError(f"{pattern} was not said:\n{''.join(self.seen)}\n{self.client.stderr.read().decode()}")

    def tasks(self) -> list[str]:
        """Folders of the executors that have one: they begin with those of their workers."""
        return [text for path in self.meeting.glob("task-*") if (text := read(path))]

    def let_go(self) -> None:
        (self.meeting / "go").touch()

    def end(self, user):
        """Exit code, log, the run's record."""
        out, err = self.client.communicate(timeout=2 * PATIENCE)
        (run,) = [one["run_id"] for one in user.runs()]
        return self.client.returncode, "".join(self.seen) + out.decode() + err.decode(), user.info(run)


def start(user, project: Path, meeting: Path, *more: str) -> Job:
    return Job(user.start("submit", "-c", "c", "tasks.py", str(meeting), *more, cwd=project), meeting)


def of_run(run: str, application: str = "?") -> dict[int, str]:
    """Processes of the run and executors of its application → their command lines."""
    mark, found = f"MLW_RUN_ID={run}\0".encode(), {}
    for entry in [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if mark in (entry / "environ").read_bytes() or f"--app-id {application}" in line:
                found[int(entry.name)] = line
        except OSError:
            continue
    return found


def must_be_gone(cluster, run: str, application: str) -> None:
    wait_until(lambda: of_run(run, application) == {}, "the end of all processes of the run", PATIENCE)
    wait_until(lambda: cluster.active() == [], "the end of the application on the master", PATIENCE)
    assert run in cluster.completed(), "it was there"


def test_a_worker_dies_and_the_job_goes_on(user, project, cluster, meeting):
    """The log streams while it runs; both workers work for it; one is killed; the rest of the cluster does it all."""
    job = start(user, project, meeting)
    folders = job.tasks()
    assert {Path(folder).parts[-3] for folder in folders} == {"worker1", "worker2"}, folders
    assert all(job.application in folder for folder in folders), folders
    cluster.kill_worker(2)
    wait_until(lambda: cluster.state()["aliveworkers"] == 1, "the loss to be noticed", PATIENCE)
    job.let_go()
    code, said, record = job.end(user)
    assert code == 0, said
    assert "total 14" in said
    assert (record["status"], record["total"]) == ("Completed", 14.0), record
    assert (user.folder(record["run_id"]) / "work/outputs/total.txt").read_text() == "14"
    must_be_gone(cluster, record["run_id"], job.application)
    shown = user.mlw("show", record["run_id"], cwd=project)
    assert job.application in shown.out, shown
    assert re.search(r"executors?\b.* lost|lost .*executor", shown.out, re.IGNORECASE), shown


def test_the_driver_is_killed(user, project, cluster, meeting):
    """Its Java is; the Python beside it would stay for ever."""
    job = start(user, project, meeting, "--stubborn")
    run = user.runs()[0]["run_id"]
    assert len([line for line in of_run(run, job.application).values() if "ExecutorBackend" in line]) >= 2
    (driver,) = [pid for pid, line in of_run(run).items() if "org.apache.spark.deploy.SparkSubmit" in line]
    os.kill(driver, signal.SIGKILL)
    code, said, record = job.end(user)
    assert code != 0, said
    assert record["status"] == "Failed", record
    assert "the Spark driver was lost" in record["cause"], record
    must_be_gone(cluster, run, job.application)


def test_cancel_ends_the_application(user, project, cluster, meeting):
    job = start(user, project, meeting)
    run = user.runs()[0]["run_id"]
    assert cluster.active() == [run], "an application is called as its run"
    done = user.mlw("cancel", run, cwd=project)
    assert done.code == 0, done
    code, said, record = job.end(user)
    assert code != 0, said
    assert (record["status"], record["ending"]) == ("Canceled", "cancelled"), record
    must_be_gone(cluster, run, job.application)


def test_a_job_through_an_edge_node(laptop, module_machine, spark_cluster_in):
    """All that is needed there is Spark and a way to the master: the laptop has neither."""
    host = module_machine()
    cluster = spark_cluster_in(host)
    root = laptop.project("far", tasks=TASKS, helper=HELPER)
    attached = laptop.mlw(
        *words(host, "cluster", "c"), "--private-key-file", str(host.key), "--master", cluster.url, cwd=root
    )
    assert attached.code == 0, attached
    own = {"userManagedEnvironment": "true", "pythonLocation": str(cluster.spark.python)}
    sparkling(root, "c", configuration={"spark.driver.host": host.address}, **own)
    meeting = host.home / "meeting"
    meeting.mkdir(mode=0o777)
    meeting.chmod(0o777)
    job = start(laptop, root, meeting)
    assert {Path(folder).parts[-3] for folder in job.tasks()} == {"worker1", "worker2"}, job.tasks()
    assert cluster.active() == [laptop.runs()[0]["run_id"]]
    job.let_go()
    code, said, record = job.end(laptop)
    assert code == 0 and "total 14" in said, said
    assert (record["status"], record["total"]) == ("Completed", 14.0), record
    assert (laptop.folder(record["run_id"]) / "work/outputs/total.txt").read_text() == "14"
    must_be_gone(cluster, record["run_id"], job.application)
