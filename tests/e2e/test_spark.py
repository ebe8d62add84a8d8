"""``Framework: PySpark`` on this machine: real Spark, through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REAL_PYTHON
from tests.e2e.spark_projects import HELPER, JOB, configure_pyspark, set_compute_key, set_environment_variables

pytestmark = pytest.mark.timeout(300)
WHICH = "import os, sys, pyspark\nprint(os.environ['SPARK_HOME'], pyspark.__file__)\nsys.exit(int(sys.argv[1]))\n"


@pytest.fixture
def project(user, spark) -> Path:
    root = user.project("demo", job=JOB, helper=HELPER, which=WHICH)
    configure_pyspark(root, "local", pythonLocation=str(spark.python))
    return root


def empty_python(tmp_path: Path) -> Path:
    """Create an environment without packages and return its interpreter."""
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "-q", "-p", REAL_PYTHON, tmp_path / "bare"], check=True)
    return tmp_path / "bare" / "bin" / "python"


def test_spark_job(user, project):
    """The job gets its arguments and settings, logs a metric, writes an output, and has a project module in tasks."""
    configure_pyspark(project, "local", configuration={"spark.mlw.test": "a = b; $c", "spark.master": "local[2]"})
    done = user.mlw("submit", "-c", "local", "job.py", "--name", "two words", "$HOME", cwd=project)
    assert done.code == 0, done
    for line in ("arguments ['--name', 'two words', '$HOME']", "told a = b; $c", "total 9900"):
        assert line in done.out.splitlines(), done
    assert f"named {done.run} on local[2]" in done.out
    record = user.info(done.run)
    assert (record["status"], record["total"]) == ("Completed", 9900.0), record
    assert (user.folder(done.run) / "work/outputs/rows.txt").read_text().split()[-1] == "198"
    assert "application local-" in user.mlw("logs", done.run, cwd=project).out


def test_configured_spark_installation_is_used(user, project, spark, tmp_path):
    """With SPARK_HOME or sparkSubmitLocation, the script's Python needs no pyspark."""
    set_compute_key(project, "local", "pythonLocation", str(empty_python(tmp_path)))
    set_environment_variables(project, "local", SPARK_HOME=str(spark.home))
    by_home = user.mlw("submit", "-c", "local", "which.py", "0", cwd=project)
    assert by_home.code == 0, by_home
    expected = f"{spark.home} {spark.home}/python/lib/pyspark.zip/pyspark/__init__.py"
    assert expected in by_home.out.splitlines(), by_home
    set_environment_variables(project, "local")
    set_compute_key(project, "local", "sparkSubmitLocation", str(spark.submit))
    by_location = user.mlw("submit", "-c", "local", "which.py", "7", cwd=project)
    assert by_location.code == 7, by_location
    assert expected in by_location.out.splitlines(), by_location
    assert user.info(by_location.run)["ending"] == "failed (exit 7)"


def test_parallel_sweep_runs(user, project):
    """Two Spark drivers run on one machine at the same time, and both complete with their own metric."""
    arguments = ("submit", "-c", "local", "job.py", "--sweep", "depth=1,2", "--parallel", "2", "--metric", "total")
    done = user.mlw(*arguments, cwd=project, timeout=240)
    assert done.code == 0, done
    children = [user.info(child) for child in user.info(done.run)["sweep"]["children"]]
    assert [(child["total"], child["status"]) for child in children] == [(9900.0, "Completed")] * 2, children


# -- missing requirements are reported before the run --------------------------------------------------


def submit_refused(user, project: Path, *arguments: str, **more) -> str:
    done = user.mlw("submit", "-c", "local", *arguments, "job.py", cwd=project, **more)
    assert done.code == 78, done
    assert "hint:" in done.err and "Traceback" not in done.err, done
    assert user.runs() == [], "there is no run of it"
    return done.err


def test_missing_pyspark(user, project, tmp_path):
    set_compute_key(project, "local", "pythonLocation", str(empty_python(tmp_path)))
    message = submit_refused(user, project)
    assert "aml_config/local.runconfig uses Framework: PySpark" in message and "pyspark" in message
    assert "set Framework: Python" in message.partition("hint:")[2]
    runconfig = project / "aml_config" / "local.runconfig"
    runconfig.write_text(runconfig.read_text().replace("Framework: PySpark\n", ""))
    assert "(the default)" in submit_refused(user, project)


@pytest.mark.parametrize(
    ("variable", "message"),
    [("JAVA_HOME", "JAVA_HOME is /nonexistent, which contains no bin/java"),
     ("SPARK_HOME", "SPARK_HOME is /nonexistent, which contains no bin/spark-submit")],
)  # fmt: skip
def test_variable_with_a_missing_path(user, project, variable, message):
    set_environment_variables(project, "local", **{variable: "/nonexistent"})
    assert message in submit_refused(user, project)


def test_outdated_java(user, project, tmp_path):
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="11.0.2"\n')
    set_environment_variables(project, "local", JAVA_HOME=str(tmp_path / "java"))
    message = submit_refused(user, project)
    assert "Java 11.0.2" in message and "older than 17" in message and "openjdk-17-jre-headless" in message


def test_missing_spark_submit_program(user, project):
    set_compute_key(project, "local", "sparkSubmitLocation", "/opt/none/bin/spark-submit")
    assert "sparkSubmitLocation /opt/none/bin/spark-submit is not a program" in submit_refused(user, project)


def test_module_is_refused_for_spark(user, project):
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
    command = " ".join(argv)
    assert "--master local[*] " in command and "--conf spark.executor.cores=2 " in command
    assert "--packages org.example:reader_2.13:1.5 --repositories https://repo.example/maven job.py" in command
    assert user.runs() == []
