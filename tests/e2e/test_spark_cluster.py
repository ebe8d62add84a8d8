"""``type: cluster``: a standalone master with two workers, used directly and through an edge node, with failures."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.attach_helpers import attach_arguments
from tests.e2e.spark_projects import HELPER, configure_pyspark
from tests.machines.network import read, wait_until
from tests.machines.spark import TIMEOUT

pytestmark = pytest.mark.timeout(400)
# Two tasks, one per worker. Each reports its location and waits for the test. Tasks import from the project.
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
    spark_cluster.repair()
    return spark_cluster


@pytest.fixture
def project(user, spark, cluster) -> Path:
    """A project with a cluster that is reached directly."""
    root = user.project("demo", tasks=TASKS, helper=HELPER)
    attached = user.mlw("computetarget", "attach", "cluster", "--name", "c", "--master", cluster.url, cwd=root)
    assert attached.code == 0, attached
    settings = {"spark.driver.host": "127.0.0.1"}
    configure_pyspark(
        root, "c", configuration=settings, userManagedEnvironment="true", pythonLocation=str(spark.python)
    )
    return root


@pytest.fixture
def exchange_folder(tmp_path) -> Path:
    """The folder where the tasks of a job and the test exchange files."""
    folder = tmp_path / "meeting"
    folder.mkdir()
    return folder


class Job:
    """A submit in the background. The constructor returns when both tasks wait."""

    def __init__(self, client: subprocess.Popen[bytes], exchange_folder: Path) -> None:
        self.client, self.exchange_folder = client, exchange_folder
        self.seen: list[str] = []
        self.application = self._await(r"^application (app-\d+-\d+)$")
        wait_until(lambda: len(self.tasks()) == 2, "two tasks", TIMEOUT)

    def _await(self, pattern: str) -> str:
        for line in self.client.stdout:
            self.seen.append(line.decode())
            match = re.search(pattern, self.seen[-1])
            if match:
                return match.group(1)
        raise AssertionError(f"{pattern} was not said:\n{''.join(self.seen)}\n{self.client.stderr.read().decode()}")

    def tasks(self) -> list[str]:
        """Return the folders of the executors, which are below those of their workers."""
        return [text for path in self.exchange_folder.glob("task-*") if (text := read(path))]

    def release(self) -> None:
        (self.exchange_folder / "go").touch()

    def end(self, user):
        """Return exit code, log, and run record."""
        out, err = self.client.communicate(timeout=2 * TIMEOUT)
        (run,) = [row["run_id"] for row in user.runs()]
        return self.client.returncode, "".join(self.seen) + out.decode() + err.decode(), user.info(run)


def start(user, project: Path, exchange_folder: Path, *more: str) -> Job:
    return Job(user.start("submit", "-c", "c", "tasks.py", str(exchange_folder), *more, cwd=project), exchange_folder)


def processes_of_run(run: str, application: str = "?") -> dict[int, str]:
    """Map processes of the run and executors of its application to their command lines."""
    mark, processes = f"MLW_RUN_ID={run}\0".encode(), {}
    for entry in [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if mark in (entry / "environ").read_bytes() or f"--app-id {application}" in line:
                processes[int(entry.name)] = line
        except OSError:
            continue
    return processes


def assert_ended(cluster, run: str, application: str) -> None:
    wait_until(lambda: processes_of_run(run, application) == {}, "the end of all processes of the run", TIMEOUT)
    wait_until(lambda: cluster.active() == [], "the end of the application on the master", TIMEOUT)
    assert run in cluster.completed(), "it was there"


def test_job_continues_after_worker_death(user, project, cluster, exchange_folder):
    """The log streams during the run. After one of two workers is killed, the other one finishes the job."""
    job = start(user, project, exchange_folder)
    folders = job.tasks()
    assert {Path(folder).parts[-3] for folder in folders} == {"worker1", "worker2"}, folders
    assert all(job.application in folder for folder in folders), folders
    cluster.kill_worker(2)
    wait_until(lambda: cluster.state()["aliveworkers"] == 1, "the loss to be noticed", TIMEOUT)
    job.release()
    code, log, record = job.end(user)
    assert code == 0, log
    assert "total 14" in log
    assert (record["status"], record["total"]) == ("Completed", 14.0), record
    assert (user.folder(record["run_id"]) / "work/outputs/total.txt").read_text() == "14"
    assert_ended(cluster, record["run_id"], job.application)
    shown = user.mlw("show", record["run_id"], cwd=project)
    assert job.application in shown.out, shown
    assert re.search(r"executors?\b.* lost|lost .*executor", shown.out, re.IGNORECASE), shown


def test_killed_driver(user, project, cluster, exchange_folder):
    """The test kills the driver's Java process. mlw must end its Python process, which would otherwise run forever."""
    job = start(user, project, exchange_folder, "--stubborn")
    run = user.runs()[0]["run_id"]
    assert len([line for line in processes_of_run(run, job.application).values() if "ExecutorBackend" in line]) >= 2
    (driver,) = [pid for pid, line in processes_of_run(run).items() if "org.apache.spark.deploy.SparkSubmit" in line]
    os.kill(driver, signal.SIGKILL)
    code, log, record = job.end(user)
    assert code != 0, log
    assert record["status"] == "Failed", record
    assert "the Spark driver was lost" in record["cause"], record
    assert_ended(cluster, run, job.application)


def test_cancel_ends_application(user, project, cluster, exchange_folder):
    job = start(user, project, exchange_folder)
    run = user.runs()[0]["run_id"]
    assert cluster.active() == [run], "an application is called as its run"
    done = user.mlw("cancel", run, cwd=project)
    assert done.code == 0, done
    code, log, record = job.end(user)
    assert code != 0, log
    assert (record["status"], record["ending"]) == ("Canceled", "cancelled"), record
    assert_ended(cluster, run, job.application)


def test_job_through_edge_node(laptop, module_machine, spark_cluster_in):
    """The edge node needs only Spark and access to the master; the laptop has neither."""
    host = module_machine()
    cluster = spark_cluster_in(host)
    root = laptop.project("far", tasks=TASKS, helper=HELPER)
    attached = laptop.mlw(
        *attach_arguments(host, "cluster", "c"), "--private-key-file", str(host.key), "--master", cluster.url, cwd=root
    )
    assert attached.code == 0, attached
    python = {"userManagedEnvironment": "true", "pythonLocation": str(cluster.spark.python)}
    configure_pyspark(root, "c", configuration={"spark.driver.host": host.address}, **python)
    exchange_folder = host.home / "meeting"
    exchange_folder.mkdir(mode=0o777)
    exchange_folder.chmod(0o777)
    job = start(laptop, root, exchange_folder)
    assert {Path(folder).parts[-3] for folder in job.tasks()} == {"worker1", "worker2"}, job.tasks()
    assert cluster.active() == [laptop.runs()[0]["run_id"]]
    job.release()
    code, log, record = job.end(laptop)
    assert code == 0 and "total 14" in log, log
    assert (record["status"], record["total"]) == ("Completed", 14.0), record
    assert (laptop.folder(record["run_id"]) / "work/outputs/total.txt").read_text() == "14"
    assert_ended(cluster, record["run_id"], job.application)
