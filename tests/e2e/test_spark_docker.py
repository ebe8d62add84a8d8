"""``Framework: PySpark`` in containers: Spark and Java are the machine's, mounted into an image that has neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.elsewhere import Away
from tests.e2e.sparkling import HELPER, JOB, say, sparkling, variables

pytestmark = pytest.mark.timeout(300)


def give_spark(root: Path, name: str, spark) -> list[str]:
    """Keys and variables by which a container finds them; the folders that it has to see."""
    folders = [spark.folder, *spark.java_folders]
    mounts = ", ".join(f"{folder}:{folder}:ro" for folder in folders)
    sparkling(
        root,
        name,
        configuration={"spark.mlw.test": "in a container", "spark.master": "local[2]"},
        userManagedEnvironment="true",
        mounts=f"[{mounts}]",
        sparkSubmitLocation=str(spark.submit),
    )
    variables(root, name, JAVA_HOME=str(spark.java))
    return [str(folder) for folder in folders]


def must_have_run(laptop, done) -> None:
    assert done.code == 0, done
    for line in ("arguments ['1']", "told in a container", "total 9900"):
        assert line in done.out.splitlines(), done
    record = laptop.info(done.run)
    assert (record["status"], record["total"]) == ("Completed", 9900.0), record
    assert (laptop.folder(done.run) / "work/outputs/rows.txt").read_text().split()[-1] == "198"


@pytest.fixture
def project(laptop, engine) -> Path:
    laptop.uses(engine)
    root = laptop.project("demo", job=JOB, helper=HELPER)
    sparkling(root, "docker", baseDockerImage=engine.image, userManagedEnvironment="true")
    return root


def test_a_job_of_spark_in_a_container(laptop, engine, project, spark):
    allowed = [word for folder in give_spark(project, "docker", spark) for word in ("--allow-mount", folder)]
    done = laptop.mlw("submit", "-c", "docker", *allowed, "job.py", "1", cwd=project, timeout=240)
    must_have_run(laptop, done)
    assert engine.containers() == []


def test_a_job_of_spark_in_a_container_elsewhere(laptop, machine, spark):
    """Its user is not in the image's list of users, which Java wants to know the name of."""
    host = machine(docker="yes")
    there = spark.copy_to(host.home / "spark")  # the home is the one folder that the machine and its engine both see
    root = laptop.project("far", job=JOB, helper=HELPER)
    away = Away(laptop, host, "remotedocker", project=root)
    for folder in give_spark(root, "box", there):
        laptop.mlw("computetarget", "update", "box", "--allow-mount", folder, cwd=root, check=True)
    must_have_run(laptop, away.submit("job.py", "1", timeout=240))
    assert host.engine.containers() == []


def test_the_usual_image_has_no_spark(laptop, engine, project):
    compute = project / "aml_config" / "docker.compute"
    kept = [line for line in compute.read_text().splitlines() if not line.startswith("baseDockerImage")]
    compute.write_text("\n".join([*kept, ""]))
    done = laptop.mlw("submit", "-c", "docker", "job.py", cwd=project)
    assert done.code == 78 and "has Spark" in done.err, done
    assert "set Framework: Python" in done.err.partition("hint:")[2], done
    assert laptop.runs() == [] and engine.containers() == []


def test_an_image_without_spark(laptop, engine, project):
    """It is not looked into before: the run tells it, and says what to do."""
    done = laptop.mlw("submit", "-c", "docker", "job.py", cwd=project)
    assert done.code != 0, done
    record = laptop.info(done.run)
    assert record["ending"] == "could not start", record
    assert "Spark was not found" in record["cause"] and "set Framework: Python" in str(record) + done.err, record
    assert engine.containers() == []


def test_an_image_with_spark_and_no_java(laptop, engine, project, spark):
    say(project, "docker", "mounts", f"[{spark.folder}:/opt/spark-env:ro]")
    inside = f"/opt/spark-env/{spark.submit.relative_to(spark.folder)}"
    say(project, "docker", "sparkSubmitLocation", inside)
    done = laptop.mlw("submit", "-c", "docker", "--allow-mount", str(spark.folder), "job.py", cwd=project)
    assert done.code != 0, done
    record = laptop.info(done.run)
    assert record["ending"] == "could not start", record
    assert "needs Java" in record["cause"] and "openjdk-17-jre-headless" in str(record) + done.err, record
