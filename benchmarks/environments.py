"""Time until an environment is ready: from scratch, if a similar one exists, and if the environment itself exists."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import machine
from context import REPOSITORY, Context
from installs import Cost, Floor, builder, cost_of
from table import Line, Section, median, ms, time_of, times
from timing import HELLO, Contestant, Program, measure, take_turns

from mlworkbench.remote.environments.environment_state import discard
from mlworkbench.remote.shared.environment_layout import digest_of
from mlworkbench.remote.shared.layout import Root

COLD_AIM = 1.15
WARM_AIM = 0.100
SECOND_AIM = 2.0
SETS = {"small": ("numpy", "pandas", "scikit-learn"), "torch": ("torch==2.13.0",)}
IMPORTS = {"small": "sklearn.ensemble", "torch": "torch"}
FEW = 2  # rounds of the slowest contestants
# Runs only the builder of the supervisor.
_BUILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from remote.environments.build import ensure
from remote.shared.layout import Root
with open(sys.argv[3]) as file:
    lock = json.load(file)
ensure(Root(sys.argv[2]), lock, sys.argv[4], lambda text: None)
"""


@dataclass(frozen=True)
class Kit:
    """A set of packages: a project that requires them, its lock file, and the wheels that are on no index."""

    name: str
    context: Context
    project: Path
    lock: dict[str, Any]
    sent: Path

    @property
    def packages(self) -> str:
        return ", ".join(SETS[self.name])

    def floor(self) -> Floor:
        return Floor(self.context, self.context.scratch / "floor" / self.name, self.lock, self.sent)

    def build(self, target: Root, lock: dict[str, Any] | None = None) -> Program:
        """Return a program that only builds the environment on a target."""
        lock = lock or self.lock
        os.makedirs(target.packages, exist_ok=True)
        for package in lock["pip"]:
            path = Path(target.package(package["sha256"]))
            if not package.get("url") and not path.exists():
                path.hardlink_to(self.sent / package["file"])
        note = self.context.scratch / f"{lock['digest']}.json"
        note.write_text(json.dumps(lock))
        remote = REPOSITORY / "src" / "mlworkbench"
        arguments = ("-I", "-S", "-c", _BUILD, str(remote), target.path, str(note), os.devnull)
        return Program((machine.interpreter(), *arguments), self.context.workspace, self.context.environment)

    def submit(self) -> Program:
        return self.context.mlw(self.project, "submit", "hello.py")


def make_kit(context: Context, name: str) -> Kit:
    """Create a kit. Its environment is solved and built once, before the measurement."""
    project = managed_project(context, name, SETS[name])
    context.call(context.mlw(project, "submit", "hello.py"))
    lock = json.loads((context.newest() / "spec.json").read_text())["lock"]
    sent = context.scratch / "sent"
    sent.mkdir(exist_ok=True)
    store = Root(str(context.home))
    for package in lock["pip"]:
        if not package.get("url") and not (sent / package["file"]).exists():
            shutil.copyfile(store.package(package["sha256"]), sent / package["file"])
    return Kit(name, context, project, lock, sent)


def managed_project(context: Context, name: str, packages: Sequence[str]) -> Path:
    project = context.workspace / f"env-{name}"
    if not project.exists():
        context.project(project.name)
        with open(project / "aml_config" / "local.compute", "a") as file:
            file.write("userManagedEnvironment: false\n")
    depend(project, packages)
    return project


def depend(project: Path, packages: Sequence[str]) -> None:
    lines = ["name: project_environment", "dependencies:", "  - pip:", *(f"    - {package}" for package in packages)]
    (project / "aml_config" / "conda_dependencies.yml").write_text("\n".join(lines) + "\n")


def bare(target: Root) -> None:
    """Remove environments, caches, tools, and packages, and flush pending writes to disk."""
    for path in Path(target.envs).glob("*"):
        if path.is_dir():
            discard(str(path))
    for folder in (target.envs, target.tools, target.packages, f"{target.caches}/uv", target.conda_packages):
        shutil.rmtree(folder, ignore_errors=True)
    os.sync()


# -- from scratch ----------------------------------------------------------------------------------------


def cold_section(context: Context) -> Section:
    section = _begin("environment ready, on a target that has nothing")
    quiet = context.quiet()
    with builder(context) as docker:
        for name in SETS:
            kit = make_kit(context, name)
            results = take_turns(list(_cold(kit, docker)), context.slow, quiet, warm_up=False)
            bare(Root(str(context.home)))
            size = sum(package.get("size") or 0 for package in kit.lock["pip"])
            section.lines += _cold_lines(
                f"{kit.packages} ({len(kit.lock['pip'])} packages, {size / 1e6:.0f} MB)", results
            )
    section.notes += [
        f"median and smallest of {context.slow} rounds ({min(FEW, context.slow)} for pip and Docker); {quiet.words()}",
        "each turn begins with empty caches, and ours without uv too, which it fetches; all get the same files by "
        "their addresses, from the same index over the same line, but for the wheel of torch, which lies on this disk; "
        "all compile bytecode",
        "processor time is that of the program and all that it waited for; on a busy machine it grows too",
        "`mlw submit` is to the first line of a script, less the same submit with an environment of the user's own; "
        "the lock is solved already",
    ]
    return section


def _cold(kit: Kit, docker: Any) -> Iterator[Contestant[Cost]]:
    context, floor = kit.context, kit.floor()
    target, store = Root(str(context.scratch / "bare")), Root(str(context.home))
    plain = context.project(f"plain-{kit.name}")

    def clear() -> None:
        context.settle()
        floor.clear()
        bare(target)
        bare(store)

    def submit(program: Program) -> Cost:
        return Cost(measure(program, HELLO).first, 0.0)

    clear()
    yield Contestant("uv", lambda: cost_of(floor.uv()), None, clear)
    yield Contestant("build", lambda: cost_of(kit.build(target)), None, clear)
    yield Contestant("submit", lambda: submit(kit.submit()), None, clear)
    yield Contestant("plain", lambda: submit(context.mlw(plain, "submit", "hello.py")), None, clear)
    yield Contestant("pip", lambda: cost_of(floor.pip()), FEW, clear)
    if docker:
        yield Contestant("docker", lambda: docker(kit.lock, kit.sent), FEW, clear)


def _cold_lines(what: str, results: dict[str, list[Cost]]) -> list[Line]:
    clock = {name: [cost.clock for cost in got] for name, got in results.items()}
    work = {name: [cost.processor for cost in got] for name, got in results.items()}
    added = [seconds - median(clock["plain"]) for seconds in clock["submit"]]
    uv = f"`uv venv`, `uv pip install --compile-bytecode`: {_time(clock['uv'])}"

    def aimed(label: str, ours: list[float]) -> Line:
        met = median(ours) <= COLD_AIM * median(clock["uv"])
        return Line(label, _time(ours), uv, _ratio(ours, clock["uv"]), f"≤ {COLD_AIM:.2f}×", met)

    lines = [
        aimed(f"{what}: the builder", clock["build"]),
        aimed("the same, added to `mlw submit`", added),
        Line(
            "the builder, processor time",
            _time(work["build"]),
            f"uv: {_time(work['uv'])}",
            _ratio(work["build"], work["uv"]),
        ),
    ]
    others = {"pip": "`python -m venv`, `pip install`", "docker": "`docker build` of them, legacy builder"}
    for name, words in others.items():
        if name in clock:
            beside = f"the builder: {_time(clock['build'])}"
            lines.append(Line(words, _time(clock[name]), beside, times(median(clock[name]) / median(clock["build"]))))
    return lines


# -- existing environment --------------------------------------------------------------------------------


def warm_section(context: Context) -> Section:
    section = _begin("environment that is there, in a submit")
    quiet = context.quiet()
    for name in SETS:
        kit = make_kit(context, name)
        floor = kit.floor()
        context.call(floor.uv())
        own = context.project(f"own-{name}")
        compute = own / "aml_config" / "local.compute"
        compute.write_text(compute.read_text().replace(str(context.interpreter), str(floor.python("uv"))))
        programs = {"managed": kit.submit(), "own": context.mlw(own, "submit", "hello.py")}
        contestants = [
            Contestant(who, partial(measure, program, HELLO), None, context.settle) for who, program in programs.items()
        ]
        results = take_turns(contestants, context.quick, quiet)
        section.lines.append(_warm_line(kit, *([one.first for one in results[who]] for who in ("managed", "own"))))
        bare(Root(str(context.home)))
        floor.clear()
    section.notes += [
        f"median and smallest of {context.quick} rounds; {quiet.words()}",
        "`mlw submit` of print() to its first line, `userManagedEnvironment: false` against `true` with the Python of "
        "an environment of the same packages, made by uv",
    ]
    return section


def _warm_line(kit: Kit, ours: list[float], own: list[float]) -> Line:
    files = sum(
        1 for _, _, names in os.walk(Root(str(kit.context.home)).environment(kit.lock["digest"])) for _ in names
    )
    added = median(ours) - median(own)
    ratio = f"adds {ms(added)} (smallest: {ms(min(ours) - min(own))})"
    what = f"{kit.packages}: {files:,} files"
    return Line(
        what, time_of(ours), f"the user's own: {time_of(own)}", ratio, f"adds ≤ {ms(WARM_AIM)}", added <= WARM_AIM
    )


# -- second environment ----------------------------------------------------------------------------------


def second_section(context: Context) -> Section:
    """Measure PyTorch plus one small package that must be downloaded, a different package each time."""
    section = _begin("second environment that shares most packages: PyTorch and one more")
    quiet = context.quiet()
    kit = make_kit(context, "torch")
    floor = kit.floor()
    more = _more(make_kit(context, "small"), kit)
    bare(Root(str(context.home)))
    target = Root(str(context.scratch / "second"))
    context.call(kit.build(target))
    context.call(floor.uv("first"))
    context.call(kit.submit())
    builds, installs, submits = iter(more), iter(more), iter(more)

    def submit() -> Cost:
        one = next(submits)["pip"][-1]
        depend(kit.project, [*SETS["torch"], f"{one['name']}=={one['version']}"])
        return Cost(measure(kit.submit(), HELLO).first, 0.0)

    contestants = [
        Contestant("build", lambda: cost_of(kit.build(target, next(builds))), None, os.sync),
        Contestant("uv", lambda: cost_of(replace(floor, lock=next(installs)).uv()), None, os.sync),
        Contestant("submit", submit, None, context.settle),
    ]
    rounds = min(context.slow, len(more))
    results = take_turns(contestants, rounds, quiet, warm_up=False)
    ours, uv, all_in = ([one.clock for one in results[name]] for name in ("build", "uv", "submit"))
    beside = f"`uv venv`, `uv pip install --compile-bytecode`, filled cache: {_time(uv)}"
    met = median(ours) <= SECOND_AIM
    section.lines += [
        Line("the builder", _time(ours), beside, _ratio(ours, uv), f"≤ {SECOND_AIM:.0f} s", met),
        Line("`mlw submit` with solving, to its first line", _time(all_in)),
    ]
    section.notes.append(f"median and smallest of {rounds} rounds, each with another package; {quiet.words()}")
    bare(Root(str(context.home)))
    bare(target)
    floor.clear()
    return section


def _more(small: Kit, kit: Kit) -> list[dict[str, Any]]:
    """Return lock files with the kit's packages and one more small package each."""
    names = {package["name"] for package in kit.lock["pip"]}
    light = [package for package in small.lock["pip"] if package["name"] not in names and (package["size"] or 0) < 1e6]
    locks = []
    for package in light:
        lock = {**kit.lock, "pip": [*kit.lock["pip"], package]}
        locks.append({**lock, "digest": digest_of(lock)})
    return locks


# -- benefit of compiled bytecode ------------------------------------------------------------------------


def import_section(context: Context) -> Section:
    section = _begin("import in an environment, which is read-only")
    quiet = context.quiet()
    for name, module in IMPORTS.items():
        kit = make_kit(context, name)
        floor = kit.floor()
        context.call(floor.uv("bare", compiled=False))
        ours = Path(Root(str(context.home)).environment(kit.lock["digest"])) / "bin" / "python"
        settings = {**context.environment, "PYTHONDONTWRITEBYTECODE": "1"}  # root can write to protected folders, too
        arguments = ("-c", f"import {module}")
        contestants = [
            Contestant(who, partial(measure, Program((str(python), *arguments), context.workspace, settings)))
            for who, python in (("ours", ours), ("bare", floor.python("bare")))
        ]
        results = take_turns(contestants, context.slow, quiet)
        with_it, without = ([timing.total for timing in results[who]] for who in ("ours", "bare"))
        beside = f"without bytecode: {time_of(without)}"
        section.lines.append(Line(f"`import {module}`", time_of(with_it), beside, _ratio(without, with_it)))
        bare(Root(str(context.home)))
        floor.clear()
    section.notes.append(f"median and smallest of {context.slow} rounds, files in the page cache; {quiet.words()}")
    return section


# -- text output -----------------------------------------------------------------------------------------


def _begin(title: str) -> Section:
    return Section(title, notes=[f"load average before: {machine.load()}"])


def _time(values: Sequence[float]) -> str:
    return f"{median(values):.1f} s (min {min(values):.1f} s)"


def _ratio(ours: Sequence[float], floor: Sequence[float]) -> str:
    return f"{median(ours) / median(floor):.2f}× (of the smallest: {min(ours) / min(floor):.2f}×)"
