"""A uv.lock is exported from the project's own two files: workspaces above the project have no effect."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mlworkbench.environments.lock_readers import read_lockfile
from mlworkbench.environments.pip_solve import find_uv
from mlworkbench.environments.uv_export import export_lock
from mlworkbench.errors import ConfigError, SolveError
from tests.unit.environments.test_solve import HOST_PYTHON, ProjectSolver, environ, names, serve_folder, write_wheel

__all__ = ["environ"]  # re-exported fixture

PROJECT = '[project]\nname = "good"\nversion = "1"\nrequires-python = ">=3.9"\ndependencies = ["greet"]\n'
ABOVE = '[project]\nname = "above"\nversion = "1"\nrequires-python = ">=3.9"\n[tool.uv.workspace]\nmembers = ["**"]\n'
WHEEL = "greet-1.0-py3-none-any.whl"
LOCK = """version = 1
revision = 1
requires-python = ">=3.9"
{members}
[[package]]
name = "good"
version = "1"
source = {{ virtual = "{folder}" }}
dependencies = [{{ name = "greet" }}]

[package.metadata]
requires-dist = [{{ name = "greet" }}]

[[package]]
name = "greet"
version = "1.0"
source = {{ {source} }}
wheels = [
    {{ url = "{url}", hash = "sha256:{digest}" }},
]
"""


class PackageServer:
    """A server with a genuine package and a hostile one with the same name and version."""

    def __init__(self, folder: Path, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.genuine = self._wheel(folder / "simple" / "greet", b"")
        self.evil = self._wheel(folder / "evil", b"evil = True\n")
        (folder / "simple" / "greet" / "index.html").write_text(f'<a href="{WHEEL}#sha256={self.genuine}">{WHEEL}</a>')

    def _wheel(self, folder: Path, code: bytes) -> str:
        folder.mkdir(parents=True)
        write_wheel(folder / WHEEL, "greet", "1.0", code)
        return hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest()

    def own_lock(self) -> str:
        url, source = f"{self.address}/simple/greet/{WHEEL}", f'registry = "{self.address}/simple"'
        return LOCK.format(members="", folder=".", source=source, url=url, digest=self.genuine)

    def other_lock(self, folder: str) -> str:
        url = f"{self.address}/evil/{WHEEL}"
        members = '\n[manifest]\nmembers = ["above", "good"]\n\n[[package]]\nname = "above"\nversion = "1"\n'
        members += 'source = { virtual = "." }\n'
        return LOCK.format(members=members, folder=folder, source=f'url = "{url}"', url=url, digest=self.evil)

    def project(self, folder: Path) -> None:
        index = f'[[tool.uv.index]]\nurl = "{self.address}/simple"\ndefault = true\n'
        (folder / "pyproject.toml").write_text(PROJECT + index)
        (folder / "uv.lock").write_text(self.own_lock())

    def workspace(self, folder: Path, member: str) -> None:
        (folder / "pyproject.toml").write_text(ABOVE)
        (folder / "uv.lock").write_text(self.other_lock(member))


@pytest.fixture
def package_server(tmp_path):
    (tmp_path / "server").mkdir()
    with serve_folder(tmp_path / "server") as port:
        yield PackageServer(tmp_path / "server", port)


def make_solver(folder: Path, environ, cache: Path) -> ProjectSolver:
    folder.mkdir()
    solver = ProjectSolver(folder, environ)
    solver.cache = cache
    return solver


def test_a_clone_inside_a_workspace_does_not_change_the_lock_of_another_project(tmp_path, environ, package_server):
    """The clone has the same two files as the user's project and is inside a workspace with another lock file."""
    clone, mine = (make_solver(tmp_path / name, environ, tmp_path / "cache") for name in ("hostile", "mine"))
    package_server.workspace(tmp_path / "hostile", "project")
    for solver in (clone, mine):
        package_server.project(solver.root)
        lock = solver.solve(read_lockfile(solver.root / "uv.lock", solver.root), host=HOST_PYTHON).lock
        assert [(entry["name"], entry["sha256"]) for entry in lock["pip"]] == [("greet", package_server.genuine)]


def test_a_workspace_above_the_temporary_folder_is_not_read(tmp_path, environ, package_server, monkeypatch):
    """Other users can create a workspace in /tmp."""
    solver = make_solver(tmp_path / "mine", environ, tmp_path / "cache")
    package_server.project(solver.root)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    package_server.workspace(temporary, "x")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    lock = solver.solve(read_lockfile(solver.root / "uv.lock", solver.root), host=HOST_PYTHON).lock
    assert [entry["sha256"] for entry in lock["pip"]] == [package_server.genuine]
    assert sorted(path.name for path in temporary.iterdir()) == ["pyproject.toml", "uv.lock"]


def test_export_uses_the_text_that_was_read(tmp_path, environ, package_server):
    """The cache key and uv use the same text, even if the file changes after it was read."""
    solver = make_solver(tmp_path / "mine", environ, tmp_path / "cache")
    package_server.project(solver.root)
    dependencies = read_lockfile(solver.root / "uv.lock", solver.root)
    (solver.root / "uv.lock").write_text(package_server.other_lock("."))
    assert [entry["sha256"] for entry in solver.solve(dependencies, host=HOST_PYTHON).lock["pip"]] == [
        package_server.genuine
    ]
    changed = solver.solve(read_lockfile(solver.root / "uv.lock", solver.root), host=HOST_PYTHON)
    assert not changed.cached and [entry["sha256"] for entry in changed.lock["pip"]] == [package_server.evil]


def test_the_root_of_a_workspace_inside_the_project_is_exported(tmp_path, environ, package_server):
    solver = make_solver(tmp_path / "mine", environ, tmp_path / "cache")
    package_server.project(solver.root)
    with (solver.root / "pyproject.toml").open("a") as file:
        file.write('[tool.uv.workspace]\nmembers = ["parts/*"]\n')
    lock = solver.solve(read_lockfile(solver.root / "uv.lock", solver.root), host=HOST_PYTHON).lock
    assert names(lock["pip"]) == {"greet": "1.0"}


REGISTRY = 'registry = "https://index.example/simple"'


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (REGISTRY, f"greet==1.0 ; python_version > '3.8' --hash=sha256:{'0' * 64}"),
        (
            'url = "https://server.example/greet.zip", subdirectory = "a/b"',
            "greet @ https://server.example/greet.zip#subdirectory=a/b",
        ),
        (
            f'git = "https://server.example/greet?subdirectory=a%2Fb&rev=main#{"1" * 40}"',
            f"greet @ git+https://server.example/greet@{'1' * 40}#subdirectory=a/b",
        ),
        (
            f'git = "ssh://git@server.example/greet#{"1" * 40}"',
            f"greet @ git+ssh://git@server.example/greet@{'1' * 40}",
        ),
    ],
)
def test_packages_of_the_lock_file_are_exported(monkeypatch, source, line):
    assert exported(monkeypatch, source, line) == [line]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (REGISTRY, "other==1.0"),
        (REGISTRY, "greet==1.1"),
        (REGISTRY, "greet"),
        (REGISTRY, f"greet==1.0 --hash=sha256:{'f' * 64}"),
        (REGISTRY, "greet @ https://server.example/greet.zip"),
        ('url = "https://server.example/greet.zip"', "greet==1.0"),
        ('url = "https://server.example/greet.zip"', "greet @ https://other.example/greet.zip"),
        (f'git = "https://server.example/greet#{"1" * 40}"', f"greet @ git+https://server.example/greet@{'2' * 40}"),
    ],
)
def test_a_package_that_is_not_in_the_lock_file_is_refused(monkeypatch, source, line):
    with pytest.raises(ConfigError, match=r"not a package|not in this lock file"):
        exported(monkeypatch, source, line)


def exported(monkeypatch, source: str, line: str) -> list[str]:
    """Return the exported requirements if uv prints this line."""

    class Done:
        returncode, stdout, stderr = 0, line + "\n", ""

    monkeypatch.setattr("mlworkbench.environments.uv_export.run_uv", lambda *_: Done)
    lock = LOCK.format(members="", folder=".", source=source, url="https://x.example/x.whl", digest="0" * 64)
    return export_lock((lock, PROJECT), {}, "uv.lock")


def test_a_damaged_lock_file_is_refused(environ):
    with pytest.raises(SolveError, match=r"uv cannot read uv\.lock"):
        export_lock(("version = 99\n", PROJECT), environ, "uv.lock")


def test_uv_is_not_a_shim(tmp_path, monkeypatch):
    """A shim is refused: it would start the program that the project's .tool-versions file selects."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nothing"))
    for folder in ("bin", "shims"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "uv").write_text("#!/bin/sh\n")
        (tmp_path / folder / "uv").chmod(0o755)
    assert find_uv({"PATH": str(tmp_path / "bin")}) == str(tmp_path / "bin" / "uv")
    with pytest.raises(SolveError, match="uv, which is not installed"):
        find_uv({"PATH": str(tmp_path / "shims")})
