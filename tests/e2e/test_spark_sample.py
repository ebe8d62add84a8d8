"""The sample project ``spark-sweep``: its readme, with real Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import REAL_PYTHON
from tests.e2e.spark_projects import add_spark_settings, set_compute_key, set_environment_variables
from tests.machines.nvml import FakeGpus
from tests.machines.spark import JAVA, TIMEOUT, Spark

pytestmark = pytest.mark.timeout(600)
TIMEOUT_FOR_JOB = 4 * TIMEOUT
ROWS = 650_000  # 172 MB; an executor has 160 MiB, of which Spark itself uses more than half
# Settings for executors with less memory than Spark's default minimum.
SMALLER = {
    "spark.executor.memory": "160m",
    "spark.testing.reservedMemory": "33554432",
    "spark.network.maxRemoteBlockSizeFetchToMem": "64m",
}


@pytest.fixture(scope="module")
def python(spark: Spark) -> Path:
    """A Python with all packages of the sample, available to the driver and the executors."""
    return spark.python


@pytest.fixture
def project(user, python) -> Path:
    done = user.mlw("project", "create", "--name", "sweep", "--template", "spark-sweep")
    assert done.code == 0, done
    root = user.home / "sweep"
    add_spark_settings(root, JAVA)
    set_compute_key(root, "local", "userManagedEnvironment", "true")
    set_compute_key(root, "local", "pythonLocation", str(python))
    return root


def check_result(user, run: str, rows: int) -> None:
    """Check that the sweep finds the frequency hidden in the data, so that the remaining error is the noise."""
    record = user.info(run)
    assert (record["status"], record["rows"]) == ("Completed", rows), record
    assert record["best_mse"] == pytest.approx(0.25, abs=0.01)
    outputs = user.folder(run) / "work" / "outputs"
    best = json.loads((outputs / "best.json").read_text())
    assert (best["frequency"], best["rows"], len(best["weights"])) == (1.7, rows, 65)
    assert (outputs / "curve.svg").read_text().count("<polyline") == 5


def test_sample_on_local_machine(user, project):
    done = user.mlw("submit", "-c", "local", "sweep.py", "--rows", "40000", cwd=project, timeout=TIMEOUT_FOR_JOB)
    assert done.code == 0, done
    assert "40,000 rows in 1 shards: 11 MB; executor memory 512m" in done.out.splitlines(), done
    assert "best of 30: frequency 1.7" in done.out
    check_result(user, done.run, 40_000)
    curves = json.loads(user.mlw("history", "metrics", done.run, "-o", "json", cwd=project).out)
    assert {"mse_penalty_0.01", "explained"} < set(curves["metrics"])


def test_data_larger_than_executor_memory(user, project, python, spark_cluster):
    """As in the readme, the sample processes more data on a cluster than fits into memory, and loses no executor."""
    attached = user.mlw(
        "computetarget", "attach", "cluster", "--name", "my_cluster", "--master", spark_cluster.url, cwd=project
    )
    assert attached.code == 0, attached
    set_compute_key(project, "my_cluster", "userManagedEnvironment", "true")
    set_compute_key(project, "my_cluster", "pythonLocation", str(python))
    add_spark_settings(project, SMALLER)
    arguments = ("submit", "-c", "my_cluster", "sweep.py", "--rows", str(ROWS))
    done = user.mlw(*arguments, cwd=project, env={"SPARK_LOCAL_IP": "127.0.0.1"}, timeout=TIMEOUT_FOR_JOB)
    assert done.code == 0, done
    assert "650,000 rows in 13 shards: 172 MB; executor memory 160m" in done.out.splitlines(), done
    check_result(user, done.run, ROWS)
    assert spark_cluster.completed()[done.run] == "FINISHED"
    spark = user.info(done.run)["spark"]
    assert (spark["executors"]["most"], spark["executors"]["lost"], spark["tasks"]["failed"]) == (2, 0, 0), spark


def test_run_in_container(laptop, engine, python, spark):
    """Spark, numpy, and Java of this machine are mounted, which avoids a download of half a gigabyte."""
    laptop.use_engine(engine)
    assert laptop.mlw("project", "create", "--name", "sweep", "--template", "spark-sweep").code == 0
    root = laptop.home / "sweep"
    add_spark_settings(root, JAVA)
    folders = [python.parents[1], Path(REAL_PYTHON).parents[1], *spark.java_folders]
    settings = {
        "baseDockerImage": engine.image,
        "userManagedEnvironment": "true",
        "pythonLocation": str(python),
        "mounts": f"[{', '.join(f'{folder}:{folder}:ro' for folder in folders)}]",
    }
    for key, value in settings.items():
        set_compute_key(root, "docker", key, value)
    set_environment_variables(root, "docker", JAVA_HOME=str(spark.java))
    allowed = [argument for folder in folders for argument in ("--allow-mount", str(folder))]
    done = laptop.mlw(
        "submit", "-c", "docker", *allowed, "sweep.py", "--rows", "40000", cwd=root, timeout=TIMEOUT_FOR_JOB
    )
    assert done.code == 0, done
    check_result(laptop, done.run, 40_000)
    assert engine.containers() == []


def test_gpu_configuration_gives_same_result(user, project, tmp_path):
    """Check the readme's claims about the run configurations for GPUs."""
    gpus = FakeGpus(tmp_path)
    gpus.add("GPU-0a", memory=(16 << 30, 0), name="NVIDIA H200", utilisation=0)
    user.env.update(gpus.env_nvml_only)
    done = user.mlw("submit", "-c", "local-gpu", "sweep.py", "--rows", "40000", cwd=project, timeout=TIMEOUT_FOR_JOB)
    assert done.code == 0, done
    assert "GPU 0: NVIDIA H200" in done.err and "GPU used:  no" in done.err, done
    assert user.info(done.run)["gpus"] == "1", "it had asked for one"
    check_result(user, done.run, 40_000)
