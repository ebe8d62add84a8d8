"""mlw as people install it: with pip, pipx and uv, on every Python of this machine; used, and taken off again.

On the oldest and the newest Python with pip, and all that everybody does first. On those between, every module is
imported, and a run is submitted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlworkbench.version import __version__
from tests.building import REPOSITORY, SETTINGS, UV, build_wheel
from tests.conftest import REAL_PYTHON, end_processes
from tests.interpreters import from_version

PYTHONS = from_version((3, 10))
OLDEST, NEWEST = PYTHONS[0][1], PYTHONS[-1][1]


def pythons(*some: tuple[tuple[int, int], str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("python", [path for _, path in some], ids=[f"{v[0]}.{v[1]}" for v, _ in some])


# All modules that need nothing but what is installed; what runs on other machines has its own tests.
IMPORT_ALL = """
import importlib, pkgutil, sys, warnings
warnings.filterwarnings("error", module="mlworkbench")
import mlworkbench
skipped = ("mlworkbench.remote.inrun", "mlworkbench.samples", "mlworkbench.__main__", "mlworkbench.remote.__main__")
skipped += ("mlworkbench.testing", *sys.argv[1:])
names = [one.name for one in pkgutil.walk_packages(mlworkbench.__path__, "mlworkbench.", onerror=lambda name: None)]
names = [name for name in names if not name.startswith(skipped)]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


class Newcomer:
    """Somebody with an empty home and a Python, who has just installed mlw."""

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.home.mkdir()
        path = f"{Path(REAL_PYTHON).parent}:/usr/bin:/bin"
        # A warning of Python itself would be seen in what mlw says.
        self.env = {"HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8", "PYTHONWARNINGS": "default"}

    def say(self, *words: str | Path, cwd: Path | None = None, **env: str) -> tuple[str, str]:
        done = subprocess.run(
            words,
            cwd=cwd or self.home,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        assert "Warning" not in done.stderr, done.stderr
        return done.stdout, done.stderr

    def walk(self, mlw: Path) -> None:
        """What everybody does first."""
        try:
            assert self.say(mlw, "--version")[0] == f"mlw, version {__version__}\n"
            self.say(mlw, "project", "create", "--name", "demo")
            root = self.home / "demo"
            assert self.say(mlw, "project", "validate", cwd=root)[1] == "no problems found\n"
            _, told = self.say(mlw, "submit", "-c", "local", "train.py", cwd=root)
            assert "Status:    Completed" in told
            last = json.loads(self.say(mlw, "history", "last", "-o", "json", cwd=root)[0])
            assert last["status"] == "Completed" and last["accuracy"] > 0.5
            assert "_mlw_completion" in self.say(mlw, "completion", "bash")[0]
            assert self.say(mlw, "submit", "-c", "lo", cwd=root, _MLW_COMPLETE="bash")[0].split() == ["local"]
        finally:
            end_processes(self.home)


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    return Newcomer(tmp_path)


def call(*words: str | Path, **env: str) -> None:
    done = subprocess.run(words, env={**SETTINGS, **env}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


def left(place: Path) -> list[str]:
    """What still has our name below a folder."""
    found = [os.path.join(top, name) for top, folders, files in os.walk(place) for name in (*folders, *files)]
    return [path for path in found if os.path.basename(path).startswith(("mlw", "mlworkbench"))]


@pythons(PYTHONS[0], *PYTHONS[1:][-1:])
def test_pip_on_the_oldest_and_the_newest_python(newcomer, wheel, tmp_path, python):
    place = tmp_path / "venv"
    call(python, "-m", "venv", place)
    pip = (place / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-q")
    call(*pip, "install", wheel)
    call(*pip, "check")
    newcomer.walk(place / "bin" / "mlw")
    assert left(place)
    call(*pip, "uninstall", "-y", "mlworkbench")
    assert left(place) == []


@pythons(*PYTHONS[1:-1])
def test_it_runs_on_the_pythons_between(newcomer, wheel, tmp_path, python):
    place = tmp_path / "venv"
    call(UV, "venv", "-q", "-p", python, place)
    call(UV, "pip", "install", "-q", "-p", place / "bin" / "python", wheel)
    out, _ = newcomer.say(place / "bin" / "python", "-c", IMPORT_ALL, "mlworkbench.ui", PYTHONWARNINGS="")
    assert int(out) > 200
    try:
        newcomer.say(place / "bin" / "mlw", "project", "create", "--name", "demo")
        _, told = newcomer.say(place / "bin" / "mlw", "submit", "-c", "local", "train.py", cwd=newcomer.home / "demo")
        assert "Status:    Completed" in told
    finally:
        end_processes(newcomer.home)


def test_pipx(newcomer, wheel, tmp_path):
    folders = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    folders["PIPX_MAN_DIR"] = str(tmp_path / "man")
    pipx = (sys.executable, "-m", "pipx")
    call(*pipx, "install", "--python", NEWEST, wheel, **folders)
    newcomer.walk(tmp_path / "bin" / "mlw")
    call(*pipx, "uninstall", "mlworkbench", **folders)
    assert left(tmp_path / "bin") == left(tmp_path / "pipx" / "venvs") == []


def test_uv_tool(newcomer, wheel, tmp_path):
    folders = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    call(UV, "tool", "install", "-q", "-p", NEWEST, wheel, **folders)
    newcomer.walk(tmp_path / "bin" / "mlw")
    call(UV, "tool", "uninstall", "-q", "mlworkbench", **folders)
    assert left(tmp_path / "bin") == left(tmp_path / "tools") == []


@pytest.mark.parametrize("base", sorted({OLDEST, NEWEST}), ids=lambda path: Path(path).name)
def test_the_oldest_packages_that_we_allow(newcomer, wheel, tmp_path, base):
    place = tmp_path / "venv"
    call(UV, "venv", "-q", "-p", base, place)
    python = place / "bin" / "python"
    project = REPOSITORY / "pyproject.toml"
    call(UV, "pip", "install", "-q", "-p", python, "--resolution", "lowest-direct", "-r", project, wheel)
    newcomer.walk(place / "bin" / "mlw")
    newcomer.say(python, "-c", "import rattler, jmespath, keyring, rich.table, pynvml")


def test_the_newest_python_warns_of_nothing(newcomer, wheel, tmp_path):
    """Nothing that we import or call is about to go: every module is loaded, those of the browser too."""
    place = tmp_path / "venv"
    call(UV, "venv", "-q", "-p", NEWEST, place)
    python = place / "bin" / "python"
    call(UV, "pip", "install", "-q", "-p", python, f"{wheel}[ui]")
    (site,) = place.glob("lib/python*/site-packages/mlworkbench")
    newcomer.say(python, "-W", "error", "-m", "compileall", "-q", "-f", site)
    out, _ = newcomer.say(python, "-c", IMPORT_ALL, PYTHONWARNINGS="")
    assert int(out) > 300
