"""Other tools that run a script and record it, each in a temporary virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import machine
from context import CACHE, SCRIPTS, Context
from timing import Program

_PROJECT = 'name: hello\nentry_points:\n  main:\n    command: "python -u hello.py"\n'


@dataclass(frozen=True)
class Recipe:
    """How to install a peer and run hello.py with it."""

    name: str
    program: str
    packages: tuple[str, ...]
    run: tuple[str, ...]


@dataclass(frozen=True)
class Peer:
    """An installed peer, or the reason why it is not installed."""

    recipe: Recipe
    program: Path | None
    version: str
    problem: str = ""

    @property
    def name(self) -> str:
        return self.recipe.name


RECIPES = (
    Recipe("guild", "guild", ("guildai", "setuptools<81"), ("run", "hello.py", "-y")),
    Recipe("mlflow", "mlflow", ("mlflow",), ("run", ".", "--env-manager", "local")),
)


def find_all() -> list[Peer]:
    return [find(recipe) for recipe in RECIPES]


def mlflow() -> Peer:
    return find(next(recipe for recipe in RECIPES if recipe.name == "mlflow"))


def find(recipe: Recipe) -> Peer:
    """Return a peer, installed if necessary: with the current Python or, if that fails, with an older one."""
    problem = "no Python to try it with"
    for python in (machine.interpreter(), *_older()):
        place = CACHE / "peers" / f"{recipe.name}-{Path(python).resolve().name}"
        program = place / "bin" / recipe.program
        try:
            if not (place / "ready").exists():
                _install(recipe, python, place)
            version = _ask([str(program), "--version"]).split()[-1]
            (place / "ready").touch()
            return Peer(recipe, program, version)
        except (OSError, subprocess.SubprocessError) as error:
            problem = _last_line(error)
    return Peer(recipe, None, "", problem)


def _older() -> list[str]:
    root = Path.home() / ".pyenv" / "versions"
    interpreters = [str(path) for pattern in ("3.10.*", "3.9.*") for path in root.glob(f"{pattern}/bin/python")]
    on_path = [shutil.which(name) for name in ("python3.10", "python3.9")]
    return interpreters + [path for path in on_path if path]


def _install(recipe: Recipe, python: str, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    print(f"installing {recipe.name} into {place} …", flush=True)
    _ask([python, "-m", "venv", str(place)])
    _ask([str(place / "bin" / "pip"), "install", "--quiet", *recipe.packages])


def _ask(command: list[str]) -> str:
    done = subprocess.run(
        command, env=machine.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200,
        check=True,
    )  # fmt: skip
    return done.stdout


def _last_line(error: Exception) -> str:
    text = getattr(error, "stderr", None) or str(error)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return (lines or ["no reason given"])[-1][:200]


def helping(peer: Peer, context: Context) -> Program:
    return Program((str(peer.program), "--help"), context.workspace, _environment(context))


def running(peer: Peer, context: Context) -> Program:
    """Return the command that runs hello.py in a separate project."""
    folder = context.workspace / f"{peer.name}-project"
    folder.mkdir(exist_ok=True)
    shutil.copy(SCRIPTS / "hello.py", folder)
    (folder / "MLproject").write_text(_PROJECT)
    return Program((str(peer.program), *peer.recipe.run), folder, _environment(context))


def _environment(context: Context) -> dict[str, str]:
    home = context.scratch / "guild"
    os.makedirs(home, exist_ok=True)
    # Disable telemetry, which would distort the figures and send benchmark runs to the vendors.
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    return {**context.environment, **quiet, "GUILD_HOME": str(home)}
