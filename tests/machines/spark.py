"""Real Spark: a virtual environment that has it, and standalone clusters on this computer or inside a machine.

Spark is 0.4 GB and takes half a minute to install, so it is kept below .cache/ for the next time, and the processes of
one test run share it. A machine does not see that folder: ``Spark.copy_to(machine.home / "spark")``.

With it lies an archive of the classes that Spark loads (class data sharing), with which its Javas start with half the
work. A Java that does not find it, or has Spark at another path, starts without it.
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

from tests.machines.kept import CACHE, keep
from tests.machines.machine import Machine
from tests.machines.network import read, wait_until
from tests.machines.place import Place
from tests.machines.programs import SYSTEM_PATH, call, environment

WANTED = "pyspark>=4.0,<5"
NUMPY = "numpy>=1.24"  # for the sample
OLDEST = (3, 10)  # Python that it runs on
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
FOLDER = CACHE / "spark" / WANTED.translate(str.maketrans("<>=,", "____"))
CLASSES = FOLDER / "classes.jsa"
PLAIN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a third less work for a Java that lives some seconds
QUICK = f"{PLAIN} -XX:SharedArchiveFile={CLASSES} -Xlog:disable"  # the log: what it says of an archive of no use
JAVA = dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), QUICK)
SMALL = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", **JAVA}
# It loads what most of the tests' jobs load.
_JOB = """
from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
assert session.sparkContext.parallelize(range(100), 2).map(lambda one: 2 * one).sum() == 9900
session.stop()
"""
PATIENCE = 120  # seconds, for what takes ten on a machine with nothing else to do
MakeCluster = Callable[[Machine], "Cluster"]


@dataclass(frozen=True)
class Spark:
    """A virtual environment with pyspark, and the Java for it."""

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
        """All that a container must see of it: Debian keeps its settings in /etc."""
        return [self.java, *(one for one in [Path("/etc") / f"{self.java.name.rsplit('-', 1)[0]}"] if one.is_dir())]

    def copy_to(self, folder: Path) -> Spark:
        """The same at another place, in a second or two; none of its files may be changed."""
        linked = call("cp", "-al", str(self.folder), str(folder), check=False, timeout=300)
        if linked.returncode:  # another file system
            shutil.rmtree(folder, ignore_errors=True)
            call("cp", "-a", str(self.folder), str(folder), timeout=300)
        return Spark(folder, self.java)


class Cluster:
    """A master and two workers of one processor each; ``inside``: what to put before a command to be elsewhere."""

    def __init__(self, spark: Spark, place: Place, folder: Path, address: str, inside: tuple[str, ...] = ()) -> None:
        self.spark, self.folder, self.address = spark, folder, address
        self._place, self._inside = place, inside
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port, self.page = (7077, 8080) if inside else free_ports(2)
        self._start("master", MASTER, "-p", str(self.port), "--webui-port", str(self.page))
        wait_until(lambda: self._answers("master"), "the master of Spark", PATIENCE)
        self.mend()

    @property
    def url(self) -> str:
        return f"spark://{self.address}:{self.port}"

    def state(self) -> dict[str, Any]:
        """As the master's own page has it."""
        with urllib.request.urlopen(f"http://{self.address}:{self.page}/json/", timeout=20) as answer:
            return dict(json.loads(answer.read()))

    def active(self) -> list[str]:
        """Names of the applications that the master knows as running; ours are called as their runs."""
        return [one["name"] for one in self.state()["activeapps"]]

    def completed(self) -> dict[str, str]:
        """Name → state, of those that are over."""
        return {one["name"]: one["state"] for one in self.state()["completedapps"]}

    def pid(self, name: str) -> int:
        """Of "master", "worker1" or "worker2", as seen from here."""
        process = self._processes[name]
        if not self._inside:
            return process.pid
        return int(read(Path(f"/proc/{process.pid}/task/{process.pid}/children")).split()[0])

    def kill_worker(self, number: int = 1) -> None:
        """As if its machine had gone: its executors end, too, when they notice."""
        name = f"worker{number}"
        os.kill(self.pid(name), signal.SIGKILL)
        self._processes.pop(name).wait(30)

    def mend(self) -> None:
        """Two living workers, and no application."""
        for name in ("worker1", "worker2"):
            if name not in self._processes:
                work = self.folder / name
                self._start(name, WORKER, "-c", "1", "-m", "1g", "--webui-port", "0", "-d", str(work), self.url)
        wait_until(self._is_whole, f"a cluster of two workers (see {self.folder})", PATIENCE)

    def close(self) -> None:
        for name in list(self._processes):
            with contextlib.suppress(OSError, IndexError):
                os.kill(self.pid(name), signal.SIGKILL)
            self._processes.pop(name).wait(30)

    def _start(self, name: str, *words: str) -> None:
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
        told = [f"{key}={value}" for key, value in variables.items()]
        argv = [*self._inside, "env", *told, program, words[0], "-h", self.address, *words[1:]]
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                argv,
                env=environment(**self._place.marked),  # so that it is found if nobody closes this
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _answers(self, name: str) -> bool:
        if self._processes[name].poll() is not None:
            raise RuntimeError(f"{name} did not start:\n{read(self.folder / f'{name}.log')[-3000:]}")
        with contextlib.suppress(OSError, ValueError):
            return bool(self.state()["status"] == "ALIVE")
        return False

    def _is_whole(self) -> bool:
        found = self.state() if all(self._answers(name) for name in self._processes) else {}
        return found.get("aliveworkers") == 2 and not found["activeapps"]


@pytest.fixture(scope="session")
def spark() -> Spark:
    """Real Spark. Java is the system's."""
    made = Spark(FOLDER, _java())

    def make(folder: Path) -> None:
        _install(folder)
        _keep_classes(made)

    about = f"{NUMPY} {_python()} {made.java} {read(made.java / 'release')}"
    keep(str(FOLDER.relative_to(CACHE)), about, make)
    return made


@pytest.fixture(scope="module")
def spark_cluster(spark: Spark, stand: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster on this computer, for all tests of a module: `spark_cluster.mend()` after killing a part of it."""
    made = Cluster(spark, stand, tmp_path_factory.mktemp("cluster"), "127.0.0.1")
    yield made
    made.close()


@pytest.fixture(scope="module")
def spark_cluster_in(spark: Spark, stand: Place) -> Iterator[MakeCluster]:
    """spark_cluster_in(machine) → a cluster on that machine, with Spark in its user's home, at ~/spark."""
    made: list[Cluster] = []

    def make(machine: Machine) -> Cluster:
        there = spark.copy_to(machine.home / "spark")
        folder = machine.home / "cluster"
        made.append(Cluster(there, stand, folder, machine.address, tuple(machine.inside())))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def free_ports(count: int) -> list[int]:
    """Found together, so that they are different ones."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return found


def _install(folder: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "-q", "-p", _python(), folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    subprocess.run(
        [*pip, "install", "--quiet", "--disable-pip-version-check", "--no-warn-script-location", WANTED, NUMPY],
        check=True,
    )


def _keep_classes(spark: Spark) -> None:
    """Write the archive of classes, which takes a Java with Spark in it half a minute."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "job.py").write_text(_JOB)
        options = f"{PLAIN} -XX:ArchiveClassesAtExit={CLASSES} -Xlog:disable -Djava.io.tmpdir={folder}"
        words = ["--master", "local[2]", "--conf", f"spark.local.dir={folder}", "--driver-memory", "512m"]
        words += ["--conf", f"spark.driver.extraJavaOptions={options}", f"{folder}/job.py"]
        told = {"JAVA_HOME": str(spark.java), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(spark.python)}
        subprocess.run(
            [str(spark.submit), *words], check=True, capture_output=True, env=environment(**told), timeout=600
        )


def _python() -> Path:
    """The system's, if it will do: machines and their image have that one, too."""
    from tests.conftest import REAL_PYTHON  # That module loads this one.

    system = Path(os.path.realpath("/usr/bin/python3"))
    words = call(str(system), "-c", "import sys; print(*sys.version_info[:2])", check=False).stdout.split()
    return system if tuple(int(word) for word in words) >= OLDEST else Path(REAL_PYTHON)


def _java() -> Path:
    """One that Spark 4 can use, not too new a one: what scripts/test-tools installs goes first."""
    for home in sorted(Path("/usr/lib/jvm").glob("java-17-openjdk-*")):
        if (home / "bin" / "java").exists():
            return home
    found = shutil.which("java", path=SYSTEM_PATH)
    if found is None:
        why = "there is no Java (scripts/test-tools installs it)"
        pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)
    return Path(os.path.realpath(found)).parents[1]
