"""Disk usage and startup time of an installation: mlw from its wheel, compared with the peers.

Each is installed with ``pip`` into a separate virtual environment. The size of an empty one is subtracted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import machine
import peers
from context import CACHE, REPOSITORY, Context
from installs import UV, Cost, cost_of
from peers import Peer, Recipe
from table import Line, Section, median, ms, times
from timing import Contestant, Program, take_turns

# The packages of each peer, and the command that its users type.
RECIPES = (
    Recipe("guild", "guild", ("guildai", "setuptools<81"), ()),
    Recipe("dvc", "dvc", ("dvc",), ()),
    Recipe("wandb", "wandb", ("wandb",), ()),
    Recipe("clearml", "clearml-task", ("clearml",), ()),
    Recipe("mlflow-skinny", "mlflow", ("mlflow-skinny",), ()),
    Recipe("mlflow", "mlflow", ("mlflow",), ()),
    Recipe("dstack", "dstack", ("dstack",), ()),
    Recipe("skypilot", "sky", ("skypilot",), ()),
    Recipe("ray", "ray", ("ray[default]",), ()),
)
# Disable telemetry, which would distort the figures and send benchmark runs to the vendors.
_QUIET = {
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
    "WANDB_MODE": "offline",
}


@dataclass(frozen=True)
class Size:
    """Bytes on disk, number of files, and number of packages of an environment."""

    bytes: int
    files: int
    packages: int

    def less(self, other: Size) -> Size:
        return Size(self.bytes - other.bytes, self.files - other.files, self.packages - other.packages)

    def __str__(self) -> str:
        return f"{self.bytes / 1e6:,.0f} MB, {self.files:,} files, {self.packages} packages"


def size_of(place: Path) -> Size:
    total = files = packages = 0
    for top, folders, names in os.walk(place):
        packages += sum(name.endswith(".dist-info") and top.endswith("site-packages") for name in folders)
        files += len(names)
        total += sum(os.lstat(os.path.join(top, name)).st_blocks * 512 for name in names)
    return Size(total, files, packages)


def own_place(extra: str = "") -> Path:
    """Return the path of the virtual environment in which the wheel of the current tree is installed."""
    return CACHE / "own" / f"mlw{extra}"


def install_own(extra: str = "") -> Path:
    place = own_place(extra)
    shutil.rmtree(place, ignore_errors=True)
    wheels = place / "wheel"
    _run([UV, "build", "-q", "--wheel", "--out-dir", str(wheels), str(REPOSITORY)])
    (wheel,) = wheels.glob("*.whl")
    _run([machine.interpreter(), "-m", "venv", str(place)])
    _run([str(place / "bin" / "pip"), "install", "--quiet", f"{wheel}{extra}"])
    shutil.rmtree(wheels)
    return place


def _run(command: list[str]) -> None:
    environment = machine.environment(UV_SYSTEM_CERTS="1")
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")


def _place_of(peer: Peer) -> Path:
    assert peer.program is not None
    return peer.program.parent.parent


def size_section(context: Context) -> Section:
    section = Section("the core install on the disk")
    section.notes.append(f"load average before: {machine.load()}")
    empty_place = context.scratch / "empty"
    _run([machine.interpreter(), "-m", "venv", str(empty_place)])
    empty = size_of(empty_place)
    ours = size_of(install_own()).less(empty)
    section.lines.append(Line("`pip install mlworkbench`", str(ours), "an empty virtual environment, taken off here"))
    whole = size_of(install_own("[ui]")).less(empty)
    section.lines.append(Line("the same with `[ui]`", str(whole), "`mlworkbench`", _ratio(whole, ours)))
    installed = [peers.find(recipe) for recipe in RECIPES]
    for peer in installed:
        what = f"`pip install {' '.join(peer.recipe.packages)}`"
        if peer.program is None:
            section.lines.append(Line(what, "not installed", peer.problem))
            continue
        theirs = size_of(_place_of(peer)).less(empty)
        section.lines.append(Line(f"{what} ({peer.version})", str(theirs), "`mlworkbench`", _ratio(theirs, ours)))
    own = size_of(_package(own_place()))
    section.notes += [
        f"blocks on the disk, with the bytecode that pip compiles; {own.bytes / 1e6:.1f} MB are mlw's own files, "
        "the rest is mostly uv and py-rattler, which install the packages of projects",
        f"an empty virtual environment: {empty}; `[ui]` is the Workbench in the browser: the pages of guild, mlflow, "
        "skypilot and ray are in what is counted here, those of dstack need its extra `server`",
    ]
    return section


def _package(place: Path) -> Path:
    (package,) = place.glob("lib/python*/site-packages/mlworkbench")
    return package


def _ratio(size: Size, other: Size) -> str:
    return times(size.bytes / other.bytes)


def start_section(context: Context) -> Section:
    section = Section("how soon a command answers")
    section.notes.append(f"load average before: {machine.load()}")
    place = own_place() if (own_place() / "bin" / "mlw").exists() else install_own()
    installed = [peer for peer in map(peers.find, RECIPES) if peer.program]
    ours, theirs = _ours(context, place), _theirs(context, installed)
    quiet = context.quiet()
    contestants = [Contestant(name, lambda one=one: cost_of(one)) for name, one in ours.items()]
    contestants += [Contestant(name, lambda one=one: cost_of(one), context.slow) for name, one in theirs.items()]
    results = take_turns(contestants, context.quick, quiet)
    floor = results["`python -c pass`"]
    for name in ours:
        beside = ("`python -c pass`", _times(results[name], floor)) if results[name] is not floor else ("", "")
        section.lines.append(Line(name, _value(results[name]), *beside))
    for name in theirs:
        same = f"`mlw {name.strip('`').split()[-1]}`"
        section.lines.append(Line(name, _value(results[name]), same, _times(results[name], results[same])))
    section.notes += [
        f"median, smallest, and median of the processors' time, of {context.quick} rounds in which all take turns, "
        f"{context.slow} for the peers; {quiet.words()}",
        "other work on the machine lengthens the first more than the others; ratios are of the medians on the clock",
        "TAB asks `mlw` itself; the history is empty; peers: "
        + ", ".join(f"{peer.name} {peer.version}" for peer in installed),
    ]
    return section


def _ours(context: Context, place: Path) -> dict[str, Program]:
    environment = {**context.environment, "MLW_HOME": str(context.scratch / "nothing-yet")}

    def program(*arguments: str, **more: str) -> Program:
        return Program((str(place / "bin" / arguments[0]), *arguments[1:]), context.workspace, {**environment, **more})

    return {
        "`python -c pass`": program("python", "-c", "pass"),
        "`pip --version`": program("pip", "--version"),
        "`mlw --version`": program("mlw", "--version"),
        "`mlw --help`": program("mlw", "--help"),
        "`mlw history list`": program("mlw", "history", "list"),
        "TAB after `mlw hist`": program("mlw", "hist", _MLW_COMPLETE="bash"),
    }


def _theirs(context: Context, installed: list[Peer]) -> dict[str, Program]:
    home = context.scratch / "peers"
    home.mkdir(exist_ok=True)
    environment = {**context.environment, **_QUIET, "HOME": str(home), "GUILD_HOME": str(home / "guild")}
    return {
        f"{_name(peer)} {option}`": Program((str(peer.program), option), context.workspace, environment)
        for option in ("--version", "--help")
        for peer in installed
    }


def _name(peer: Peer) -> str:
    """Return the start of a label, with a distinct name for mlflow-skinny, whose command is also ``mlflow``."""
    return f"`{peer.recipe.program}" if peer.name != "mlflow-skinny" else "mlflow-skinny: `mlflow"


def _value(got: list[Cost]) -> str:
    clock = [cost.clock for cost in got]
    return f"{ms(median(clock))} (min {ms(min(clock))}); processor {ms(median([cost.processor for cost in got]))}"


def _times(one: list[Cost], other: list[Cost]) -> str:
    return times(median([cost.clock for cost in one]) / median([cost.clock for cost in other]))


SECTIONS = {"install-size": size_section, "install-start": start_section}
