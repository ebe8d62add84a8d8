"""Real Spark: a virtual environment with it, and standalone clusters on this computer or inside a machine.

Spark is 0.4 GB and takes half a minute to install, so it is cached below .cache/, and the processes of one test run
share it. Machines do not see that folder: use ``Spark.copy_to(machine.home / "spark")``.

The cache includes an archive of the classes that Spark loads (class data sharing), which halves the startup work
of Java. Without the archive, or with Spark at another path, Java starts normally.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.machines.file_cache import CACHE, cached_folder
from tests.machines.machine import Machine
from tests.machines.network import read, wait_until
from tests.machines.programs import SYSTEM_PATH, call, environment
from tests.machines.sandbox import Sandbox

WANTED = "pyspark>=4.0,<5"
NUMPY = "numpy>=1.24"  # for the sample project spark-sweep
# Spark is a source package: compressing the wheel that pip builds costs more than the rest of the installation.
_STORED = ["--config-settings", "--build-option=--compression=stored"]
OLDEST = (3, 10)  # oldest Python version for Spark
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
FOLDER = CACHE / "spark" / WANTED.translate(str.maketrans("<>=,", "____"))
CLASSES = FOLDER / "classes.jsa"
PLAIN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a third less work for a short-lived Java process
QUICK = f"{PLAIN} -XX:SharedArchiveFile={CLASSES} -Xlog:disable"  # hides messages about an unusable archive
JAVA = dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), QUICK)
SMALL = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", **JAVA}
# Loads the classes that most test jobs load.
_JOB = """
from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
assert session.sparkContext.parallelize(range(100), 2).map(lambda one: 2 * one).sum() == 9900
session.stop()
"""
TIMEOUT = 120  # seconds, for steps that take ten on an idle machine
MakeCluster = Callable[[Machine], "Cluster"]


@dataclass(frozen=True)
class Spark:
    """A virtual environment with pyspark, and its Java."""

    folder: Path
    java: Path  # for JAVA_HOME

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def home(self) -> Path:
        (package,) = self.folder.glob("lib/python3*/site-packages/pyspark")
        return package

    @property
    def submit(self) -> Path:
        return self.home / "bin" / "spark-submit"

    @property
    def java_folders(self) -> list[Path]:
        """Return the Java folders to mount into a container: Debian keeps its settings in /etc."""
        return [
            self.java,
            *(folder for folder in [Path("/etc") / f"{self.java.name.rsplit('-', 1)[0]}"] if folder.is_dir()),
        ]

    def copy_to(self, folder: Path) -> Spark:
        """Copy Spark to another folder. The copies are hard links if possible, so they must not be changed."""
        linked = call("cp", "-al", str(self.folder), str(folder), check=False, timeout=300)
        if linked.returncode:  # another file system
            shutil.rmtree(folder, ignore_errors=True)
            call("cp", "-a", str(self.folder), str(folder), timeout=300)
        return Spark(folder, self.java)


class Cluster:
    """A master and two workers of one CPU each; ``inside``: command prefix to run them inside a machine."""

    def __init__(
        self, spark: Spark, sandbox: Sandbox, folder: Path, address: str, inside: tuple[str, ...] = ()
    ) -> None:
        self.spark, self.folder, self.address = spark, folder, address
        self._place, self._inside = sandbox, inside
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port, self.page = (7077, 8080) if inside else free_ports(2)
        self._start("master", MASTER, "-p", str(self.port), "--webui-port", str(self.page))
        wait_until(lambda: self._responds("master"), "the master of Spark", TIMEOUT)
        self.repair()

    @property
    def url(self) -> str:
        return f"spark://{self.address}:{self.port}"

    def state(self) -> dict[str, Any]:
        """Return the state from the master's web page."""
        with urllib.request.urlopen(f"http://{self.address}:{self.page}/json/", timeout=20) as answer:
            return dict(json.loads(answer.read()))

    def active(self) -> list[str]:
        """Return the names of running applications; ours are named after their runs."""
        return [application["name"] for application in self.state()["activeapps"]]

    def completed(self) -> dict[str, str]:
        """Map names of finished applications to their states."""
        return {application["name"]: application["state"] for application in self.state()["completedapps"]}

    def pid(self, name: str) -> int:
        """Return the PID of "master", "worker1", or "worker2", as seen from this computer."""
        process = self._processes[name]
        if not self._inside:
            return process.pid
        return int(read(Path(f"/proc/{process.pid}/task/{process.pid}/children")).split()[0])

    def kill_worker(self, number: int = 1) -> None:
        """Kill a worker, as if its machine had failed. Its executors end when they notice."""
        name = f"worker{number}"
        os.kill(self.pid(name), signal.SIGKILL)
        self._processes.pop(name).wait(30)

    def repair(self) -> None:
        """Restore two live workers and no application."""
        for name in ("worker1", "worker2"):
            if name not in self._processes:
                work = self.folder / name
                self._start(name, WORKER, "-c", "1", "-m", "1g", "--webui-port", "0", "-d", str(work), self.url)
        wait_until(self._is_complete, f"a cluster of two workers (see {self.folder})", TIMEOUT)

    def close(self) -> None:
        for name in list(self._processes):
            with contextlib.suppress(OSError, IndexError):
                os.kill(self.pid(name), signal.SIGKILL)
            self._processes.pop(name).wait(30)

    def _start(self, name: str, *arguments: str) -> None:
        program = str(self.spark.home / "bin" / "spark-class")
        variables = {
            "JAVA_HOME": str(self.spark.java),
            "SPARK_HOME": str(self.spark.home),
            "SPARK_LOCAL_IP": self.address,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK} -Djava.io.tmpdir={self.folder}",
            "SPARK_LOCAL_DIRS": str(self.folder),
            "PATH": SYSTEM_PATH,
        }
        assignments = [f"{key}={value}" for key, value in variables.items()]
        argv = [*self._inside, "env", *assignments, program, arguments[0], "-h", self.address, *arguments[1:]]
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                argv,
                # The mark lets cleanup find the process if nothing closes it.
                env=environment(**self._place.marked),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _responds(self, name: str) -> bool:
        if self._processes[name].poll() is not None:
            raise RuntimeError(f"{name} did not start:\n{read(self.folder / f'{name}.log')[-3000:]}")
        with contextlib.suppress(OSError, ValueError):
            return bool(self.state()["status"] == "ALIVE")
        return False

    def _is_complete(self) -> bool:
        state = self.state() if all(self._responds(name) for name in self._processes) else {}
        return state.get("aliveworkers") == 2 and not state["activeapps"]


@pytest.fixture(scope="session")
def spark() -> Spark:
    """Real Spark with the system's Java."""
    installation = Spark(FOLDER, _java())

    def make(folder: Path) -> None:
        _install(folder)
        _archive_classes(installation)

    about = f"{NUMPY} {_python()} {installation.java} {read(installation.java / 'release')}"
    cached_folder(str(FOLDER.relative_to(CACHE)), about, make)
    return installation


@pytest.fixture(scope="module")
def spark_cluster(spark: Spark, sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster on this computer for a module; call `spark_cluster.repair()` after killing a process."""
    cluster = Cluster(spark, sandbox, tmp_path_factory.mktemp("cluster"), "127.0.0.1")
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def spark_cluster_in(spark: Spark, sandbox: Sandbox) -> Iterator[MakeCluster]:
    """spark_cluster_in(machine) → a cluster on that machine, with Spark in its user's home, at ~/spark."""
    clusters: list[Cluster] = []

    def make(machine: Machine) -> Cluster:
        copy = spark.copy_to(machine.home / "spark")
        folder = machine.home / "cluster"
        clusters.append(Cluster(copy, sandbox, folder, machine.address, tuple(machine.inside())))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()


def free_ports(count: int) -> list[int]:
    """Return free ports, reserved together so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    ports = [int(listener.getsockname()[1]) for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def _install(folder: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "-q", "-p", _python(), folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    subprocess.run(
        [
            *pip,
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-warn-script-location",
            *_STORED,
            WANTED,
            NUMPY,
        ],
        check=True,
    )


def _archive_classes(spark: Spark) -> None:
    """Run a small Spark job with the Java option that writes the class archive."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "job.py").write_text(_JOB)
        options = f"{PLAIN} -XX:ArchiveClassesAtExit={CLASSES} -Xlog:disable -Djava.io.tmpdir={folder}"
        arguments = ["--master", "local[2]", "--conf", f"spark.local.dir={folder}", "--driver-memory", "512m"]
        arguments += ["--conf", f"spark.driver.extraJavaOptions={options}", f"{folder}/job.py"]
        variables = {"JAVA_HOME": str(spark.java), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(spark.python)}
        subprocess.run(
            [str(spark.submit), *arguments], check=True, capture_output=True, env=environment(**variables), timeout=600
        )


def _python() -> Path:
    """Return the system's Python if it is new enough, because machines have it, too. Otherwise, that of the tests."""
    from tests.conftest import REAL_PYTHON  # That module loads this one.

    system = Path(os.path.realpath("/usr/bin/python3"))
    version = call(str(system), "-c", "import sys; print(*sys.version_info[:2])", check=False).stdout.split()
    return system if tuple(int(number) for number in version) >= OLDEST else Path(REAL_PYTHON)


def _java() -> Path:
    """Return the folder of Java 17 (from scripts/test-tools) if it is installed, otherwise of the system's Java."""
    for home in sorted(Path("/usr/lib/jvm").glob("java-17-openjdk-*")):
        if (home / "bin" / "java").exists():
            return home
    java = shutil.which("java", path=SYSTEM_PATH)
    if java is None:
        why = "there is no Java (scripts/test-tools installs it)"
        pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)
    return Path(os.path.realpath(java)).parents[1]
