"""Overhead of ``mlw submit`` over ``spark-submit``: the same script, on a cluster and on this computer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import machine
import peers
import remote_laptop  # noqa: F401 - adds the repository to sys.path, for tests.machines
from context import SCRIPTS, Context
from table import Line, Section, median
from tests.machines.sandbox import Sandbox
from tests.machines.spark import Cluster, Spark
from timing import Contestant, Program, Timing, measure, take_turns

AIM = 1.05
SETTINGS = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
SCRIPT = "sharded.py"
TARGET = "my_cluster"
_RECIPE = peers.Recipe("spark", "python", ("pyspark>=4.0,<5",), ())
_JAVAS = "/usr/lib/jvm"


def lacks() -> str:
    """Return the missing requirement of these sections, or an empty string."""
    return "" if _java() else "Java 17"


def _java() -> Path | None:
    return next((home for home in sorted(Path(_JAVAS).glob("java-17-*")) if (home / "bin" / "java").exists()), None)


@dataclass(frozen=True)
class Ground:
    """A local Spark installation, a Spark cluster, and a project that can run on either."""

    context: Context
    spark: Spark
    cluster: Cluster
    project: Path

    @property
    def environment(self) -> dict[str, str]:
        mine = {"JAVA_HOME": str(self.spark.java), "SPARK_LOCAL_IP": "127.0.0.1"}
        return {**self.context.environment, **mine, "PYSPARK_PYTHON": str(self.spark.python)}

    def bare(self, master: str) -> Program:
        settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
        command = (str(self.spark.submit), "--master", master, *settings, SCRIPT)
        return Program(command, self.project, self.environment)

    def ours(self, target: str) -> Program:
        program = self.context.mlw(self.project, "submit", "-c", target, SCRIPT)
        return Program(program.command, program.folder, self.environment)

    def settle(self) -> None:
        """Wait until the previous run has ended on this computer and on the cluster."""
        self.context.settle()
        self.cluster.repair()


@contextmanager
def ground(context: Context) -> Iterator[Ground]:
    """Start the cluster, and stop everything afterwards. Spark itself stays in the cache."""
    with ExitStack() as stack:
        spark = _installed()
        place = Sandbox()
        stack.callback(place.close)
        cluster = Cluster(spark, place, context.scratch / "cluster", "127.0.0.1")
        stack.callback(cluster.close)
        yield Ground(context, spark, cluster, _project(context, spark, cluster))


def _installed() -> Spark:
    java = _java()
    peer = peers.find(_RECIPE)
    if java is None or peer.program is None:
        raise RuntimeError(f"there is no Spark: {peer.problem or lacks()}")
    return Spark(peer.program.parents[1], java)


def _project(context: Context, spark: Spark, cluster: Cluster) -> Path:
    context.call(context.mlw(context.workspace, "project", "create", "--name", "sharded"))
    project = context.workspace / "sharded"
    shutil.copy(SCRIPTS / SCRIPT, project)
    files = project / "aml_config"
    context.call(context.mlw(project, "computetarget", "attach", "cluster", "--name", TARGET, "--master", cluster.url))
    python = f"pythonLocation: {spark.python}\nuserManagedEnvironment: true\n"
    for name in ("local", TARGET):
        with (files / f"{name}.compute").open("a") as file:
            file.write("\n" + python)
        runconfig = files / f"{name}.runconfig"
        runconfig.write_text(runconfig.read_text().replace("Framework: Python\n", "Framework: PySpark\n"))
    lines = [f"  {name}: {value}" for name, value in SETTINGS.items()]
    (files / "spark_dependencies.yml").write_text("\n".join(["version: 2", "configuration:", *lines, ""]))
    return project


def spark_section(context: Context) -> Section:
    section = Section("`mlw submit` beside `spark-submit`", notes=[f"load average before: {machine.load()}"])
    quiet = context.quiet()
    with ground(context) as setup:
        places = {TARGET: setup.cluster.url, "local": "local[*]"}
        contestants = [
            Contestant(f"{who} {target}", lambda program=program: measure(program), None, setup.settle)
            for target, master in places.items()
            for who, program in (("bare", setup.bare(master)), ("mlw", setup.ours(target)))
        ]
        results = take_turns(contestants, context.slow, quiet)
        version = setup.spark.home.joinpath("version.py").read_text().strip().split("= ")[1].strip("'\"")
    section.lines += [
        _compare("a master and two workers of one processor", TARGET, results),
        _compare("`local[*]`", "local", results),
    ]
    section.notes += [
        f"median and smallest of {context.slow} rounds, taking turns; {quiet.words()}",
        f"Spark {version}; from the start of the command to its exit; three passes over eight shards of numbers,"
        " 512 MB for driver and executors; the same virtual environment, no packages to install",
        "`mlw submit` includes all that it does: snapshot, supervisor, Spark's own journal of events, which is read"
        " while it grows, modules for the executors, history",
    ]
    return section


def _compare(where: str, target: str, results: dict[str, list[Timing]]) -> Line:
    ours, floor = ([timing.total for timing in results[f"{who} {target}"]] for who in ("mlw", "bare"))
    ratio = median(ours) / median(floor)
    words = f"{ratio:.3f}× (of the smallest: {min(ours) / min(floor):.3f}×), adds {median(ours) - median(floor):.2f} s"
    beside = f"`spark-submit`: {_seconds(floor)}"
    return Line(f"`mlw submit`, {where}", _seconds(ours), beside, words, f"≤ {AIM:.2f}×", ratio <= AIM)


def _seconds(values: list[float]) -> str:
    return f"{median(values):.2f} s (min {min(values):.2f})"


SECTIONS = {"spark": spark_section}
