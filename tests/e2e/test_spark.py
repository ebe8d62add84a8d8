"""``Framework: PySpark`` on this machine: real Spark, through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REAL_PYTHON
from tests.e2e.sparkling import HELPER, JOB, say, sparkling, variables

pytestmark = pytest.mark.timeout(300)
WHICH = "import os, sys, pyspark\nprint(os.environ['SPARK_HOME'], pyspark.__file__)\nsys.exit(int(sys.argv[1]))\n"


@pytest.fixture
def project(user, spark) -> Path:
    root = user.project("demo", job=JOB, helper=HELPER, which=WHICH)
    sparkling(root, "local", pythonLocation=str(spark.python))
    return root


def bare(tmp_path: Path) -> Path:
    """A Python without any package."""
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "-q", "-p", REAL_PYTHON, tmp_path / "bare"], check=True)
    return tmp_path / "bare" / "bin" / "python"


def test_a_job_of_spark(user, project):
    """With its settings, a module of the project in its tasks, its metric and its output."""
    sparkling(project, "local", configuration={"spark.mlw.test": "a = b; $c", "spark.master": "local[2]"})
    done = user.mlw("submit", "-c", "local", "job.py", "--name", "two words", "$HOME", cwd=project)
    assert done.code == 0, done
    for line in ("arguments ['--name', 'two words', '$HOME']", "told a = b; $c", "total 9900"):
        assert line in done.out.splitlines(), done
    assert f"named {done.run} on local[2]" in done.out
    record = user.info(done.run)
    assert (record["status"], record["total"]) == ("Completed", 9900.0), record
    assert (user.folder(done.run) / "work/outputs/rows.txt").read_text().split()[-1] == "198"
    assert "application local-" in user.mlw("logs", done.run, cwd=project).out


def test_the_spark_that_is_named(user, project, spark, tmp_path):
    """Neither needs a pyspark in the Python of the script; and the script's exit code is the run's."""
    say(project, "local", "pythonLocation", str(bare(tmp_path)))
    variables(project, "local", SPARK_HOME=str(spark.home))
    by_home = user.mlw("submit", "-c", "local", "which.py", "0", cwd=project)
    assert by_home.code == 0, by_home
    told = f"{spark.home} {spark.home}/python/lib/pyspark.zip/pyspark/__init__.py"
    assert told in by_home.out.splitlines(), by_home
    variables(project, "local")
    say(project, "local", "sparkSubmitLocation", str(spark.submit))
    by_location = user.mlw("submit", "-c", "local", "which.py", "7", cwd=project)
    assert by_location.code == 7, by_location
    assert told in by_location.out.splitlines(), by_location
    assert user.info(by_location.run)["ending"] == "failed (exit 7)"


def test_two_points_of_a_sweep_at_once(user, project):
    """Two drivers on one machine, with their own pages, folders and metrics."""
    words = ("submit", "-c", "local", "job.py", "--sweep", "depth=1,2", "--parallel", "2", "--metric", "total")
    done = user.mlw(*words, cwd=project, timeout=240)
    assert done.code == 0, done
    children = [user.info(one) for one in user.info(done.run)["sweep"]["children"]]
    assert [(one["total"], one["status"]) for one in children] == [(9900.0, "Completed")] * 2, children


# -- what is missing is told before anything runs ------------------------------------------------------


def refused(user, project: Path, *words: str, **more) -> str:
    done = user.mlw("submit", "-c", "local", *words, "job.py", cwd=project, **more)
    assert done.code == 78, done
    assert "hint:" in done.err and "Traceback" not in done.err, done
    assert user.runs() == [], "there is no run of it"
    return done.err


def test_without_pyspark(user, project, tmp_path):
    say(project, "local", "pythonLocation", str(bare(tmp_path)))
    said = refused(user, project)
    assert "aml_config/local.runconfig uses Framework: PySpark" in said and "pyspark" in said
    assert "set Framework: Python" in said.partition("hint:")[2]
    runconfig = project / "aml_config" / "local.runconfig"
    runconfig.write_text(runconfig.read_text().replace("Framework: PySpark\n", ""))
    assert "(the default)" in refused(user, project)


@pytest.mark.parametrize(
    ("variable", "said"),
    [("JAVA_HOME", "JAVA_HOME is /nonexistent, which contains no bin/java"),
     ("SPARK_HOME", "SPARK_HOME is /nonexistent, which contains no bin/spark-submit")],
)  # fmt: skip
def test_a_variable_that_leads_nowhere(user, project, variable, said):
    variables(project, "local", **{variable: "/nonexistent"})
    assert said in refused(user, project)


def test_a_java_that_is_too_old(user, project, tmp_path):
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="11.0.2"\n')
    variables(project, "local", JAVA_HOME=str(tmp_path / "java"))
    said = refused(user, project)
    assert "Java 11.0.2" in said and "older than 17" in said and "openjdk-17-jre-headless" in said


def test_a_spark_submit_that_is_not_there(user, project):
    say(project, "local", "sparkSubmitLocation", "/opt/none/bin/spark-submit")
    assert "sparkSubmitLocation /opt/none/bin/spark-submit is not a program" in refused(user, project)


def test_a_module_is_not_for_spark(user, project):
    done = user.mlw("submit", "-c", "local", "-m", "job", cwd=project)
    assert done.code == 2 and "job is a module" in done.err and "hint: use a script" in done.err, done


def test_packages_and_settings_are_on_the_command_line(user, project):
    (project / "aml_config" / "spark_dependencies.yml").write_text(
        "configuration:\n  spark.executor.cores: 2\nrepositories:\n  - https://repo.example/maven\n"
        "packages:\n  - group: org.example\n    artifact: reader_2.13\n    version: '1.5'\n"
    )
    done = user.mlw("submit", "-c", "local", "--dry-run", "job.py", "--lr", "1", cwd=project)
    assert done.code == 0, done
    argv = json.loads(done.out)["commands"][-1]["argv"]
    assert argv[-3:] == ["job.py", "--lr", "1"]
    words = " ".join(argv)
    assert "--master local[*] " in words and "--conf spark.executor.cores=2 " in words
    assert "--packages org.example:reader_2.13:1.5 --repositories https://repo.example/maven job.py" in words
    assert user.runs() == []
