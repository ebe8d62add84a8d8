"""The sample project ``spark-sweep``: its readme, followed on real Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import REAL_PYTHON
from tests.e2e.sparkling import configure, say, variables
from tests.machines.nvml import FakeGpus
from tests.machines.spark import JAVA, PATIENCE, Spark

pytestmark = pytest.mark.timeout(600)
LONG = 4 * PATIENCE
ROWS = 650_000  # of 264 bytes: 172 MB, and an executor has 160 MiB, of which Spark takes the larger part for itself
# Less than Spark allows else.
SMALLER = {
    "spark.executor.memory": "160m",
    "spark.testing.reservedMemory": "33554432",
    "spark.network.maxRemoteBlockSizeFetchToMem": "64m",
}


@pytest.fixture(scope="module")
def python(spark: Spark) -> Path:
    """One with all packages of the sample, where driver and executors both find it."""
    return spark.python


@pytest.fixture
def project(user, python) -> Path:
    done = user.mlw("project", "create", "--name", "sweep", "--template", "spark-sweep")
    assert done.code == 0, done
    root = user.home / "sweep"
    configure(root, JAVA)
    say(root, "local", "userManagedEnvironment", "true")
    say(root, "local", "pythonLocation", str(python))
    return root


def check_result(user, run: str, rows: int) -> None:
    """The frequency that is hidden in the data was found, and what is left of the error is the noise."""
    record = user.info(run)
    assert (record["status"], record["rows"]) == ("Completed", rows), record
    assert record["best_mse"] == pytest.approx(0.25, abs=0.01)
    outputs = user.folder(run) / "work" / "outputs"
    best = json.loads((outputs / "best.json").read_text())
    assert (best["frequency"], best["rows"], len(best["weights"])) == (1.7, rows, 65)
    assert (outputs / "curve.svg").read_text().count("<polyline") == 5


def test_on_this_machine(user, project):
    done = user.mlw("submit", "-c", "local", "sweep.py", "--rows", "40000", cwd=project, timeout=LONG)
    assert done.code == 0, done
    assert "40,000 rows in 1 shards: 11 MB; executor memory 512m" in done.out.splitlines(), done
    assert "best of 30: frequency 1.7" in done.out
    check_result(user, done.run, 40_000)
    curves = json.loads(user.mlw("history", "metrics", done.run, "-o", "json", cwd=project).out)
    assert {"mse_penalty_0.01", "explained"} < set(curves["metrics"])


def test_more_data_than_an_executor_has_memory(user, project, python, spark_cluster):
    """On a cluster, as the readme says it: the shards stay with the executors, and none of them runs out of memory."""
    attached = user.mlw(
        "computetarget", "attach", "cluster", "--name", "my_cluster", "--master", spark_cluster.url, cwd=project
    )
    assert attached.code == 0, attached
    say(project, "my_cluster", "userManagedEnvironment", "true")
    say(project, "my_cluster", "pythonLocation", str(python))
    configure(project, SMALLER)
    words = ("submit", "-c", "my_cluster", "sweep.py", "--rows", str(ROWS))
    done = user.mlw(*words, cwd=project, env={"SPARK_LOCAL_IP": "127.0.0.1"}, timeout=LONG)
    assert done.code == 0, done
    assert "650,000 rows in 13 shards: 172 MB; executor memory 160m" in done.out.splitlines(), done
    check_result(user, done.run, ROWS)
    assert spark_cluster.completed()[done.run] == "FINISHED"
    spark = user.info(done.run)["spark"]
    assert (spark["executors"]["most"], spark["executors"]["lost"], spark["tasks"]["failed"]) == (2, 0, 0), spark


def test_in_a_container(laptop, engine, python, spark):
    """Spark, numpy and Java are those of this machine, mounted: no test has half a gigabyte to fetch again."""
    laptop.uses(engine)
    assert laptop.mlw("project", "create", "--name", "sweep", "--template", "spark-sweep").code == 0
    root = laptop.home / "sweep"
    configure(root, JAVA)
    folders = [python.parents[1], Path(REAL_PYTHON).parents[1], *spark.java_folders]
    settings = {
        "baseDockerImage": engine.image,
        "userManagedEnvironment": "true",
        "pythonLocation": str(python),
        "mounts": f"[{', '.join(f'{folder}:{folder}:ro' for folder in folders)}]",
    }
    for key, value in settings.items():
        say(root, "docker", key, value)
    variables(root, "docker", JAVA_HOME=str(spark.java))
    allowed = [word for folder in folders for word in ("--allow-mount", str(folder))]
    done = laptop.mlw("submit", "-c", "docker", *allowed, "sweep.py", "--rows", "40000", cwd=root, timeout=LONG)
    assert done.code == 0, done
    check_result(laptop, done.run, 40_000)
    assert engine.containers() == []


def test_a_gpu_changes_nothing(user, project, tmp_path):
    """What the readme says of the run configurations for GPUs."""
    gpus = FakeGpus(tmp_path)
    gpus.add("GPU-0a", memory=(16 << 30, 0), name="NVIDIA H200", utilisation=0)
    user.env.update(gpus.env_nvml_only)
    done = user.mlw("submit", "-c", "local-gpu", "sweep.py", "--rows", "40000", cwd=project, timeout=LONG)
    assert done.code == 0, done
    assert "GPU 0: NVIDIA H200" in done.err and "GPU used:  no" in done.err, done
    assert user.info(done.run)["gpus"] == "1", "it had asked for one"
    check_result(user, done.run, 40_000)
