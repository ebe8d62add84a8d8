"""Executors of a cluster get the packages of the project: its environment is sent as one archive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import User, end_processes
from tests.e2e.spark_projects import configure_pyspark
from tests.machines.channel import depend
from tests.machines.network import wait_until

pytestmark = pytest.mark.timeout(600)
# Reports what a task sees on a worker without mlworkbench. With a folder, a name, and a number as arguments, tasks
# create a file with that name and wait for that number of files, so that several runs are active at the same time.
LOOK = """
import json, os, sys, time
import mlworkbench
from pyspark import SparkContext

def look(_):
    import azureml.logging, hello, mlworkbench, six
    if meeting:
        folder, me, count = meeting
        open(os.path.join(folder, me), "w").close()
        until = time.time() + 200
        while len(os.listdir(folder)) < int(count) and time.time() < until:
            time.sleep(0.1)
    mlworkbench.log("of_a_task", 1)
    return {
        "python": sys.executable, "prefix": os.path.realpath(sys.prefix), "six": six.__version__,
        "six_file": os.path.realpath(six.__file__), "hello": os.path.realpath(hello.__file__),
        "library": mlworkbench.__file__, "folder": os.path.realpath(os.getcwd()),
        "tracking": os.environ.get("MLW_TRACKING"), "alone": os.environ.get("PYTHONNOUSERSITE"),
    }

meeting = sys.argv[1:]
context = SparkContext.getOrCreate()
found = context.parallelize(range(2), 2).map(look).collect()
mlworkbench.log("of_the_driver", 2)
print("driver", sys.prefix, flush=True)
for one in found:
    print("task", json.dumps(one), flush=True)
"""


def cluster_project(user: User, channel, master: str, submit: Path, six: str, **configuration: str) -> Path:
    """Create a project with this version of six whose runs use the cluster."""
    root = user.project("demo", look=LOOK)
    depend(root, channel, f"six=={six}")
    folder = root / "aml_config"
    (folder / "c.runconfig").write_text((folder / "local.runconfig").read_text().replace("Target: local", "Target: c"))
    (folder / "c.compute").write_text(
        f"type: cluster\nsparkMaster: {master}\nsparkSubmitLocation: {submit}\nuserManagedEnvironment: false\n"
    )
    configure_pyspark(
        root, "c", configuration={"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", **configuration}
    )
    return root


def tasks(out: str) -> list[dict[str, str]]:
    return [json.loads(line[5:]) for line in out.splitlines() if line.startswith("task ")]


def test_executors_have_project_packages(user, channel, spark_cluster):
    """Executors have Python, conda packages, pip packages, and the run library; their machines have none of these."""
    root = cluster_project(user, channel, spark_cluster.url, spark_cluster.spark.submit, "1.16.0")
    done = user.mlw("submit", "-c", "c", "look.py", cwd=root, timeout=300)
    assert done.code == 0, done
    assert "packing the environment for the executors" in done.err and "packed: " in done.err, done
    record = user.info(done.run)
    prefix = user.store / "envs" / record["environment"]["digest"]
    assert f"driver {prefix}" in done.out.splitlines(), done
    assert len(tasks(done.out)) == 2
    for task in tasks(done.out):
        unpacked = f"{task['folder']}/environment"
        assert task["folder"].startswith(str(spark_cluster.folder)), task
        assert task["prefix"] == unpacked and task["six"] == "1.16.0", task
        assert task["six_file"].startswith(unpacked) and task["hello"].startswith(unpacked), task
        assert "modules.zip" in task["library"] and (task["tracking"], task["alone"]) == ("off", "1"), task
    assert record["of_the_driver"] == 2 and "of_a_task" not in record, "tasks do not write to the run"
    archive = prefix.with_name(prefix.name + ".tar.gz")
    before = archive.stat()
    again = user.mlw("submit", "-c", "c", "look.py", cwd=root, timeout=300)
    assert again.code == 0 and "packing" not in again.err, again
    assert archive.stat().st_ino == before.st_ino, "it is used as it is"


@pytest.fixture
def unreachable_cluster_project(user, channel, tmp_path) -> Path:
    """A project for a cluster that is never contacted."""
    submit = tmp_path / "spark-submit"
    submit.write_text("#!/bin/sh\necho started\n")
    submit.chmod(0o755)
    return cluster_project(user, channel, "spark://127.0.0.1:1", submit, "1.16.0")


def test_archive_is_prepared_and_deleted_with_its_environment(user, unreachable_cluster_project):
    root = unreachable_cluster_project
    arguments = ("experiment", "prepare", "-c", "c")
    prepared = user.mlw(*arguments, cwd=root)
    assert prepared.code == 0 and "packed: " in prepared.err, prepared
    (archive,) = (user.store / "envs").glob("*.tar.gz")
    assert user.mlw(*arguments, cwd=root).err.count("packing") == 0
    archive.unlink()
    assert "packed: " in user.mlw(*arguments, cwd=root).err, "it was not there any more"
    digest = archive.name.removesuffix(".tar.gz")
    (listed,) = json.loads(user.mlw("environment", "list", "-o", "json", cwd=root).out)
    assert listed["own_bytes"] > archive.stat().st_size, listed
    removed = user.mlw("environment", "remove", digest[:12], "--yes", cwd=root)
    assert removed.code == 0, removed
    assert not archive.exists() and not list((user.store / "envs").glob("*.gz"))


def test_cancel_stops_archive_creation(user, unreachable_cluster_project):
    arguments = ("submit", "-c", "c", "--unchecked")
    fault = {"MLW_FAILPOINT": "pack-written:sleep=600"}
    run = user.mlw(*arguments, "--detach", "look.py", cwd=unreachable_cluster_project, env=fault).out.strip()
    log = user.folder(run) / "build.log"
    wait_until(lambda: log.exists() and "packing the environment" in log.read_text(), "the packing")
    done = user.mlw("cancel", run, cwd=unreachable_cluster_project)
    assert done.code == 0, done
    info = user.info(run)
    assert (info["status"], info["ending"]) == ("Canceled", "cancelled"), info
    again = user.mlw(*arguments, "look.py", cwd=unreachable_cluster_project)
    assert again.code == 0 and "packed: " in again.err and "started" in again.out, again


def test_parallel_users_with_different_packages(user, channel, spark_cluster, tmp_path):
    (tmp_path / "other").mkdir()
    other = User(tmp_path / "other")
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    users = {"1.16.0": user, "1.15.0": other}
    try:
        going = {}
        for six, who in users.items():
            settings = {"spark.cores.max": "1"}
            root = cluster_project(who, channel, spark_cluster.url, spark_cluster.spark.submit, six, **settings)
            going[six] = who.start("submit", "-c", "c", "look.py", str(meeting), six, "2", cwd=root)
        for six, process in going.items():
            out, err = (part.decode() for part in process.communicate(timeout=400))
            assert process.returncode == 0, out + err
            assert [task["six"] for task in tasks(out)] == [six, six], out
        assert sorted(settings.name for settings in meeting.iterdir()) == ["1.15.0", "1.16.0"]
    finally:
        end_processes(other.store)
