"""Installation with pip, pipx, and uv on every Python of this machine; first use and uninstallation.

On the oldest and the newest Python, pip installs and uninstalls the package, and the first commands of a new user are
run. On the versions in between, every module is imported and one run is submitted.
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


# Imports all modules that need only the installed packages. Modules that run on targets have separate tests.
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


class NewUser:
    """A new user with an empty home and a Python, who has just installed mlw."""

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.home.mkdir()
        path = f"{Path(REAL_PYTHON).parent}:/usr/bin:/bin"
        # With this setting, Python prints all warnings, and `run` fails on them.
        self.env = {"HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8", "PYTHONWARNINGS": "default"}

    def run(self, *arguments: str | Path, cwd: Path | None = None, **env: str) -> tuple[str, str]:
        done = subprocess.run(
            arguments,
            cwd=cwd or self.home,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        assert "Warning" not in done.stderr, done.stderr
        return done.stdout, done.stderr

    def run_first_commands(self, mlw: Path) -> None:
        """Run the first commands of a new user."""
        try:
            assert self.run(mlw, "--version")[0] == f"mlw, version {__version__}\n"
            self.run(mlw, "project", "create", "--name", "demo")
            root = self.home / "demo"
            assert self.run(mlw, "project", "validate", cwd=root)[1] == "no problems found\n"
            _, output = self.run(mlw, "submit", "-c", "local", "train.py", cwd=root)
            assert "Status:    Completed" in output
            last = json.loads(self.run(mlw, "history", "last", "-o", "json", cwd=root)[0])
            assert last["status"] == "Completed" and last["accuracy"] > 0.5
            assert "_mlw_completion" in self.run(mlw, "completion", "bash")[0]
            assert self.run(mlw, "submit", "-c", "lo", cwd=root, _MLW_COMPLETE="bash")[0].split() == ["local"]
        finally:
            end_processes(self.home)


@pytest.fixture
def new_user(tmp_path: Path) -> NewUser:
    return NewUser(tmp_path)


def call(*arguments: str | Path, **env: str) -> None:
    done = subprocess.run(arguments, env={**SETTINGS, **env}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"


def leftover_paths(place: Path) -> list[str]:
    """Return the paths below a folder whose file names start with mlw or mlworkbench."""
    paths = [os.path.join(top, name) for top, folders, files in os.walk(place) for name in (*folders, *files)]
    return [path for path in paths if os.path.basename(path).startswith(("mlw", "mlworkbench"))]


@pythons(PYTHONS[0], *PYTHONS[1:][-1:])
def test_pip_on_oldest_and_newest_python(new_user, wheel, tmp_path, python):
    place = tmp_path / "venv"
    call(python, "-m", "venv", place)
    pip = (place / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-q")
    call(*pip, "install", wheel)
    call(*pip, "check")
    new_user.run_first_commands(place / "bin" / "mlw")
    assert leftover_paths(place)
    call(*pip, "uninstall", "-y", "mlworkbench")
    assert leftover_paths(place) == []


@pythons(*PYTHONS[1:-1])
def test_package_on_intermediate_python_versions(new_user, wheel, tmp_path, python):
    place = tmp_path / "venv"
    call(UV, "venv", "-q", "-p", python, place)
    call(UV, "pip", "install", "-q", "-p", place / "bin" / "python", wheel)
    out, _ = new_user.run(place / "bin" / "python", "-c", IMPORT_ALL, "mlworkbench.ui", PYTHONWARNINGS="")
    assert int(out) > 200
    try:
        new_user.run(place / "bin" / "mlw", "project", "create", "--name", "demo")
        _, output = new_user.run(place / "bin" / "mlw", "submit", "-c", "local", "train.py", cwd=new_user.home / "demo")
        assert "Status:    Completed" in output
    finally:
        end_processes(new_user.home)


def test_pipx_installation(new_user, wheel, tmp_path):
    folders = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    folders["PIPX_MAN_DIR"] = str(tmp_path / "man")
    pipx = (sys.executable, "-m", "pipx")
    call(*pipx, "install", "--python", NEWEST, wheel, **folders)
    new_user.run_first_commands(tmp_path / "bin" / "mlw")
    call(*pipx, "uninstall", "mlworkbench", **folders)
    assert leftover_paths(tmp_path / "bin") == leftover_paths(tmp_path / "pipx" / "venvs") == []


def test_uv_tool_installation(new_user, wheel, tmp_path):
    folders = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    call(UV, "tool", "install", "-q", "-p", NEWEST, wheel, **folders)
    new_user.run_first_commands(tmp_path / "bin" / "mlw")
    call(UV, "tool", "uninstall", "-q", "mlworkbench", **folders)
    assert leftover_paths(tmp_path / "bin") == leftover_paths(tmp_path / "tools") == []


@pytest.mark.parametrize("base", sorted({OLDEST, NEWEST}), ids=lambda path: Path(path).name)
def test_oldest_allowed_dependencies(new_user, wheel, tmp_path, base):
    place = tmp_path / "venv"
    call(UV, "venv", "-q", "-p", base, place)
    python = place / "bin" / "python"
    project = REPOSITORY / "pyproject.toml"
    call(UV, "pip", "install", "-q", "-p", python, "--resolution", "lowest-direct", "-r", project, wheel)
    new_user.run_first_commands(place / "bin" / "mlw")
    new_user.run(python, "-c", "import rattler, jmespath, keyring, rich.table, pynvml")


def test_newest_python_reports_no_warnings(new_user, wheel, tmp_path):
    """Compiling and importing all modules, including those of the UI, causes no warning."""
    place = tmp_path / "venv"
    call(UV, "venv", "-q", "-p", NEWEST, place)
    python = place / "bin" / "python"
    call(UV, "pip", "install", "-q", "-p", python, f"{wheel}[ui]")
    (site,) = place.glob("lib/python*/site-packages/mlworkbench")
    new_user.run(python, "-W", "error", "-m", "compileall", "-q", "-f", site)
    out, _ = new_user.run(python, "-c", IMPORT_ALL, PYTHONWARNINGS="")
    assert int(out) > 300
