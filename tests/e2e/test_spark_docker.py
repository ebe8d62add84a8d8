"""``Framework: PySpark`` in containers: Spark and Java of the host are mounted into an image without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.remote_target import RemoteTarget
from tests.e2e.spark_projects import HELPER, JOB, configure_pyspark, set_compute_key, set_environment_variables

pytestmark = pytest.mark.timeout(300)


def give_spark(root: Path, name: str, spark) -> list[str]:
    """Set the keys and variables that a container needs to find Spark; return the folders to mount."""
    folders = [spark.folder, *spark.java_folders]
    mounts = ", ".join(f"{folder}:{folder}:ro" for folder in folders)
    configure_pyspark(
        root,
        name,
        configuration={"spark.mlw.test": "in a container", "spark.master": "local[2]"},
        userManagedEnvironment="true",
        mounts=f"[{mounts}]",
        sparkSubmitLocation=str(spark.submit),
    )
    set_environment_variables(root, name, JAVA_HOME=str(spark.java))
    return [str(folder) for folder in folders]


def assert_ran(laptop, done) -> None:
    assert done.code == 0, done
    for line in ("arguments ['1']", "told in a container", "total 9900"):
        assert line in done.out.splitlines(), done
    record = laptop.info(done.run)
    assert (record["status"], record["total"]) == ("Completed", 9900.0), record
    assert (laptop.folder(done.run) / "work/outputs/rows.txt").read_text().split()[-1] == "198"


@pytest.fixture
def project(laptop, engine) -> Path:
    laptop.use_engine(engine)
    root = laptop.project("demo", job=JOB, helper=HELPER)
    configure_pyspark(root, "docker", baseDockerImage=engine.image, userManagedEnvironment="true")
    return root


def test_spark_job_in_container(laptop, engine, project, spark):
    allowed = [argument for folder in give_spark(project, "docker", spark) for argument in ("--allow-mount", folder)]
    done = laptop.mlw("submit", "-c", "docker", *allowed, "job.py", "1", cwd=project, timeout=240)
    assert_ran(laptop, done)
    assert engine.containers() == []


def test_spark_job_in_remote_container(laptop, machine, spark):
    """Java looks up the name of the run's user, which is not in the image's user database."""
    host = machine(docker="yes")
    copy = spark.copy_to(host.home / "spark")  # the home is the only folder that both the machine and its engine see
    root = laptop.project("far", job=JOB, helper=HELPER)
    remote = RemoteTarget(laptop, host, "remotedocker", project=root)
    for folder in give_spark(root, "box", copy):
        laptop.mlw("computetarget", "update", "box", "--allow-mount", folder, cwd=root, check=True)
    assert_ran(laptop, remote.submit("job.py", "1", timeout=240))
    assert host.engine.containers() == []


def test_default_image_without_spark_is_refused(laptop, engine, project):
    compute = project / "aml_config" / "docker.compute"
    kept = [line for line in compute.read_text().splitlines() if not line.startswith("baseDockerImage")]
    compute.write_text("\n".join([*kept, ""]))
    done = laptop.mlw("submit", "-c", "docker", "job.py", cwd=project)
    assert done.code == 78 and "has Spark" in done.err, done
    assert "set Framework: Python" in done.err.partition("hint:")[2], done
    assert laptop.runs() == [] and engine.containers() == []


def test_image_without_spark(laptop, engine, project):
    """mlw does not inspect the image in advance: the run fails with an explanation and a hint."""
    done = laptop.mlw("submit", "-c", "docker", "job.py", cwd=project)
    assert done.code != 0, done
    record = laptop.info(done.run)
    assert record["ending"] == "could not start", record
    assert "Spark was not found" in record["cause"] and "set Framework: Python" in str(record) + done.err, record
    assert engine.containers() == []


def test_image_with_spark_without_java(laptop, engine, project, spark):
    set_compute_key(project, "docker", "mounts", f"[{spark.folder}:/opt/spark-env:ro]")
    inside = f"/opt/spark-env/{spark.submit.relative_to(spark.folder)}"
    set_compute_key(project, "docker", "sparkSubmitLocation", inside)
    done = laptop.mlw("submit", "-c", "docker", "--allow-mount", str(spark.folder), "job.py", cwd=project)
    assert done.code != 0, done
    record = laptop.info(done.run)
    assert record["ending"] == "could not start", record
    assert "needs Java" in record["cause"] and "openjdk-17-jre-headless" in str(record) + done.err, record
