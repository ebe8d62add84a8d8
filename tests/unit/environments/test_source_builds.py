"""Source packages during resolution: static metadata is used, and code of a package runs only with consent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import mlworkbench
from mlworkbench.environments import source_builds
from mlworkbench.environments.dependencies import Dependencies, Option
from mlworkbench.environments.local_files import digest_of
from mlworkbench.environments.lock_readers import read_lockfile
from mlworkbench.environments.no_build_python import GUARD_FILE, guard_options
from mlworkbench.environments.pip_solve import find_uv, run_uv
from mlworkbench.environments.source_builds import BuildPolicy, known_sources
from mlworkbench.environments.tool_wheels import pack_installed
from mlworkbench.errors import SolveError
from tests.e2e.package_index import about, sdist, wheel
from tests.e2e.package_index import serve_index as serving_index
from tests.unit.environments.test_solve import HOST_PYTHON, LINUX, VERSION, ProjectSolver, names, serve_folder

IN_TREE = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"


class HostileSolver(ProjectSolver):
    """A solver with a folder of packages whose code creates a marker file when it runs."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        super().__init__(folder, {**environ, "UV_CACHE_DIR": str(folder / "uv")})
        self.links = folder / "links"
        self.mark = folder / "mark"
        self.servers = ExitStack()
        wheel(self.links, "words", "1.0", "links")

    @property
    def leave(self) -> str:
        return f"open({str(self.mark)!r}, 'a').write(__file__)\n"

    def setup(self, name: str, *requires: str) -> str:
        return self.leave + f"from setuptools import setup\nsetup(name={name!r}, install_requires={list(requires)!r})\n"

    def backend(self) -> str:
        """Return the code of a working build backend that creates the marker file and generates the metadata."""
        return self.leave + (
            "import os\n"
            "def prepare_metadata_for_build_wheel(folder, settings=None):\n"
            "    os.mkdir(folder + '/greet-2.0.dist-info')\n"
            "    with open(folder + '/greet-2.0.dist-info/METADATA', 'w') as file:\n"
            f"        file.write({about('greet', '2.0', 'words')!r})\n"
            "    return 'greet-2.0.dist-info'\n"
            "def build_wheel(folder, settings=None, metadata=None):\n    raise SystemExit('not here')\n"
        )

    def dynamic(self, version: str = "2.0", folder: Path | None = None) -> Path:
        files = {"PKG-INFO": about("greet", version), "pyproject.toml": IN_TREE, "backend.py": self.backend()}
        return sdist(folder or self.links, "greet", version, files)

    def of_project(self) -> tuple[Option, Option]:
        """Return options that make the folder the project's only package source."""
        return (
            Option(f"--find-links {self.links}", "f", 1, "--find-links", str(self.links)),
            Option("--no-index", "f", 2, "--no-index", ""),
        )

    def of_user(self) -> None:
        """Make the folder the only package source in the user's settings."""
        self.environ |= {"PIP_NO_INDEX": "true", "PIP_FIND_LINKS": str(self.links)}

    def asks(self, *pip: str, **more) -> Dependencies:
        return self.dependencies(pip=pip, **more)


@pytest.fixture(scope="session")
def tool_wheels(tmp_path_factory) -> Path:
    """Pack uv as a wheel, as for targets without an index. This takes seconds, so all tests share the result."""
    folder = tmp_path_factory.mktemp("packed")
    pack_installed("uv", metadata.version("uv"), LINUX, VERSION, folder)
    return folder / "tool-wheels"


@pytest.fixture
def hostile(tmp_path, tool_wheels) -> Iterator[HostileSolver]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "PYTHON"))}
    solver = HostileSolver(tmp_path, {**inherited, "PIP_CONFIG_FILE": os.devnull})
    if tool_wheels.exists():
        shutil.copytree(tool_wheels, solver.cache / "tool-wheels", copy_function=os.link)
    with solver.servers:
        yield solver


def expect_refusal(solver: HostileSolver, dependencies: Dependencies, **more) -> SolveError:
    with pytest.raises(SolveError) as caught:
        solver.solve(dependencies, host=HOST_PYTHON, **more)
    return caught.value


# -- attacks -------------------------------------------------------------------------------------------


def by_setup(solver: HostileSolver) -> str:
    sdist(solver.links, "greet", "2.0", {"PKG-INFO": about("greet", "2.0"), "setup.py": solver.setup("greet")})
    return "greet"


def by_backend(solver: HostileSolver) -> str:
    solver.dynamic()
    return "greet>1"


def by_requirement_of_the_build(solver: HostileSolver) -> str:
    """Create a package whose build backend is another package with hostile code."""
    needs = "[build-system]\nrequires = ['tool']\nbuild-backend = 'tool'\n"
    sdist(solver.links, "greet", "2.0", {"PKG-INFO": about("greet", "2.0"), "pyproject.toml": needs})
    info = "tool-1.0.dist-info"
    with zipfile.ZipFile(solver.links / "tool-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", about("tool", "1.0"))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        archive.writestr("tool.py", solver.leave)
    return "greet"


def by_file(solver: HostileSolver) -> str:
    solver.dynamic(folder=solver.root)
    return "./greet-2.0.tar.gz"


def by_repository(solver: HostileSolver) -> str:
    folder = solver.root.parent / "repository"
    folder.mkdir()
    (folder / "setup.py").write_text(solver.setup("greet"))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["update-server-info"]):
        subprocess.run([*git, *arguments], cwd=folder, check=True)
    return f"greet @ git+http://127.0.0.1:{solver.servers.enter_context(serve_folder(folder))}/.git"


def by_dependency(solver: HostileSolver) -> str:
    solver.dynamic()
    wheel(solver.links, "outer", "1.0", "links", "greet")
    return "outer"


@pytest.mark.parametrize(
    "attack",
    [by_setup, by_backend, by_requirement_of_the_build, by_file, by_repository, by_dependency],
)
def test_resolving_runs_no_code_of_a_package(hostile, attack):
    line = attack(hostile)
    try:
        hostile.solve(hostile.asks(line, options=hostile.of_project()), host=HOST_PYTHON)
        error = None
    except SolveError as caught:
        error = caught
    assert not hostile.mark.exists(), hostile.mark.read_text()
    assert error is not None and "greet" in error.message and "--allow-build greet" in error.hint


def test_no_binary_option_runs_no_build(hostile):
    """The wheel's metadata is sufficient to resolve; the lock still contains the source package."""
    hostile.dynamic()
    wheel(hostile.links, "greet", "2.0", "links")
    options = (*hostile.of_project(), Option("--no-binary greet", "f", 3, "--no-binary", "greet"))
    (entry,) = hostile.solve(hostile.asks("greet", options=options), host=HOST_PYTHON).lock["pip"]
    assert entry["file"] == "greet-2.0.tar.gz" and not hostile.mark.exists()


def test_archive_on_server_runs_no_code(hostile):
    """The URL contains a password, which the error must not show."""
    hostile.dynamic()
    with serve_folder(hostile.links, "somebody:hush") as port:
        line = f"greet @ http://somebody:hush@127.0.0.1:{port}/greet-2.0.tar.gz"
        error = expect_refusal(hostile, hostile.asks(line))
    assert not hostile.mark.exists()
    assert error.message.startswith(f"greet @ http://127.0.0.1:{port}/greet-2.0.tar.gz is a source package")
    assert "hush" not in error.message + error.hint


def test_url_without_name_is_refused(hostile):
    shutil.copy(hostile.dynamic(folder=hostile.root.parent), hostile.root / "main.tar.gz")
    error = expect_refusal(hostile, hostile.asks("./main.tar.gz"))
    assert not hostile.mark.exists()
    assert "by URL only" in error.message and "NAME @ URL" in error.hint


def test_a_lock_of_uv_runs_no_code_of_a_repository(hostile):
    line = by_repository(hostile)
    pyproject = '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.9"\ndependencies = ["%s"]\n'
    (hostile.root / "pyproject.toml").write_text(pyproject % line)

    locked = run_uv(["lock", "--quiet"], {**hostile.environ, "UV_CACHE_DIR": "maker"}, hostile.root)
    assert locked.returncode == 0, locked.stderr
    hostile.mark.unlink()
    error = expect_refusal(hostile, read_lockfile(hostile.root / "uv.lock", hostile.root))
    assert not hostile.mark.exists() and "greet" in error.message


# -- versions ------------------------------------------------------------------------------------------


def test_static_metadata_is_enough(hostile):
    """The metadata is in PKG-INFO or pyproject.toml. The package comes from a folder or from a path."""
    static = {"PKG-INFO": about("greet", "2.0", "words", metadata="2.2"), "setup.py": hostile.leave}
    sdist(hostile.links, "greet", "2.0", static)
    sdist(hostile.root, "greet", "2.0", static)
    project = "[project]\nname = 'plain'\nversion = '1.0'\ndependencies = ['words']\n" + IN_TREE
    files = {"PKG-INFO": about("plain", "1.0"), "pyproject.toml": project, "backend.py": hostile.leave}
    sdist(hostile.links, "plain", "1.0", files)
    wheel(hostile.links, "greet", "1.0", "links")
    for lines in (["greet", "plain"], ["./greet-2.0.tar.gz", "plain"]):
        lock = hostile.solve(hostile.asks(*lines, options=hostile.of_project()), host=HOST_PYTHON).lock
        assert names(lock["pip"]) == {"greet": "2.0", "plain": "1.0", "words": "1.0"}
        assert next(entry["file"] for entry in lock["pip"] if entry["name"] == "greet") == "greet-2.0.tar.gz"
    assert not hostile.mark.exists()


def test_a_dynamic_dependency_list_is_not_static(hostile):
    text = about("greet", "2.0", metadata="2.2") + "Dynamic: Requires-Dist\n"
    sdist(hostile.links, "greet", "2.0", {"PKG-INFO": text, "setup.py": hostile.setup("greet")})
    error = expect_refusal(hostile, hostile.asks("greet", options=hostile.of_project()))
    assert "greet 2.0 is a source package without static metadata" in error.message and not hostile.mark.exists()


def test_a_version_without_a_wheel_is_not_replaced(hostile):
    wheel(hostile.links, "greet", "1.0", "links")
    hostile.dynamic()
    error = expect_refusal(hostile, hostile.asks("greet", options=hostile.of_project()))
    assert error.message == (
        "greet 2.0 is a source package without static metadata; resolving it would run its build script"
    )
    assert error.hint == (
        "use 1.0, the newest version with a wheel; or allow the build script to run on this machine:"
        " --allow-build greet (before submitting in the browser, run: mlw experiment prepare --allow-build greet)"
    )
    lock = hostile.solve(hostile.asks("greet<2", options=hostile.of_project()), host=HOST_PYTHON).lock
    assert names(lock["pip"]) == {"greet": "1.0"}


# -- consent -------------------------------------------------------------------------------------------


def allow(from_settings: tuple[str, ...] = (), named: tuple[str, ...] = (), **more):

    return BuildPolicy(frozenset(from_settings), frozenset(named), **more)


def test_only_allowed_builds_run(hostile):
    hostile.dynamic()
    other = {"PKG-INFO": about("other", "1.0"), "pyproject.toml": IN_TREE, "backend.py": "raise SystemExit('other')\n"}
    sdist(hostile.links, "other", "1.0", other)
    hostile.of_user()
    error = expect_refusal(hostile, hostile.asks("greet", "other"), builds=allow(["greet"]))
    assert error.message.startswith("other 1.0 is a source package") and error.hint.endswith(
        "--allow-build other (for the browser: mlw settings add allowed-builds other)"
    )
    hostile.mark.unlink(missing_ok=True)
    shutil.rmtree(hostile.environ["UV_CACHE_DIR"])
    lock = hostile.solve(hostile.asks("greet"), host=HOST_PYTHON, builds=allow(["greet"])).lock
    assert names(lock["pip"]) == {"greet": "2.0", "words": "1.0"} and hostile.mark.exists()


def test_consent_in_settings_is_for_user_indexes(hostile):
    hostile.dynamic()
    dependencies = hostile.asks("greet", options=hostile.of_project())
    error = expect_refusal(hostile, dependencies, builds=allow(["greet"]))
    assert "only for packages from your own indexes" in error.hint and not hostile.mark.exists()
    hostile.dynamic(folder=hostile.root)
    expect_refusal(hostile, hostile.asks("./greet-2.0.tar.gz"), builds=allow(["greet"]))
    assert not hostile.mark.exists()
    for item in (dependencies, hostile.asks("./greet-2.0.tar.gz", options=hostile.of_project())):
        lock = hostile.solve(item, host=HOST_PYTHON, builds=allow(named=["greet"])).lock
        assert names(lock["pip"]) == {"greet": "2.0", "words": "1.0"}
    assert hostile.mark.exists()
    # The result is cached, so a later submit without the option (as in the browser) works.
    hostile.mark.unlink()
    assert names(hostile.solve(dependencies, host=HOST_PYTHON).lock["pip"]) == {"greet": "2.0", "words": "1.0"}
    assert not hostile.mark.exists()


def test_a_dry_run_builds_nothing(hostile):
    hostile.dynamic()
    hostile.of_user()
    error = expect_refusal(hostile, hostile.asks("greet"), builds=allow(["greet"], dry_run=True))
    assert not hostile.mark.exists() and "mlw experiment prepare --allow-build greet" in error.hint
    first = hostile.solve(hostile.asks("greet"), host=HOST_PYTHON, builds=allow(["greet"]))
    hostile.mark.unlink()
    second = hostile.solve(hostile.asks("greet"), host=HOST_PYTHON, builds=allow(["greet"], dry_run=True))
    assert second.cached and second.lock == first.lock and not hostile.mark.exists()


def test_changed_consent_resolves_again(hostile):
    hostile.of_user()
    hostile.solve(hostile.asks("words"), host=HOST_PYTHON)
    assert hostile.solve(hostile.asks("words"), host=HOST_PYTHON).cached
    assert not hostile.solve(hostile.asks("words"), host=HOST_PYTHON, builds=allow(["greet"])).cached
    assert hostile.solve(hostile.asks("words"), host=HOST_PYTHON, builds=allow(named=["greet"])).cached


def test_failed_build_is_explained(hostile):
    broken = {"PKG-INFO": about("greet", "2.0"), "pyproject.toml": IN_TREE, "backend.py": "raise SystemExit('no luck')"}
    sdist(hostile.links, "greet", "2.0", broken)
    hostile.of_user()
    error = expect_refusal(hostile, hostile.asks("greet"), builds=allow(["greet"]))
    assert "Failed to" in error.message and "greet==2.0" in error.message and "no luck" in error.message


def test_a_build_without_a_cache_is_found_again(hostile):
    hostile.dynamic()
    hostile.of_user()
    hostile.environ["UV_NO_CACHE"] = "1"
    lock = hostile.solve(hostile.asks("greet"), host=HOST_PYTHON, builds=allow(["greet"])).lock
    assert names(lock["pip"]) == {"greet": "2.0", "words": "1.0"}


@pytest.mark.parametrize("keeps", [True, False])
def test_a_build_of_an_index_is_found_again(hostile, keeps):
    """The built metadata is used even if the index forbids caching. The lock contains the URL at the index."""
    path = hostile.dynamic()
    with serving_index(hostile.links.parent, key="somebody:hush") as index:
        index.keeps = keeps
        hostile.environ["PIP_INDEX_URL"] = f"{index.url_with_key}/{hostile.links.name}/simple"
        lock = hostile.solve(hostile.asks("greet"), host=HOST_PYTHON, builds=allow(["greet"])).lock
    assert names(lock["pip"]) == {"greet": "2.0", "words": "1.0"}
    greet = next(entry for entry in lock["pip"] if entry["name"] == "greet")
    assert greet["url"] == f"{index.url}/{hostile.links.name}/{path.name}" and greet["sha256"] == digest_of(path)
    assert greet["private"] and "hush" not in json.dumps(lock)


# -- archives with recorded metadata -------------------------------------------------------------------


def test_known_metadata_applies_to_known_archive_only(hostile, monkeypatch):

    path = hostile.dynamic()
    row = {"name": "greet", "version": "2.0", "sha256": digest_of(path), "requires-dist": ["words"]}
    row |= {"requires-python": ">=3.6", "provides-extra": []}
    monkeypatch.setattr(source_builds, "known_sources", lambda: (row,))
    lock = hostile.solve(hostile.asks("greet", options=hostile.of_project()), host=HOST_PYTHON).lock
    assert names(lock["pip"]) == {"greet": "2.0", "words": "1.0"}
    monkeypatch.setattr(source_builds, "known_sources", lambda: ({**row, "sha256": "0" * 64},))
    expect_refusal(hostile, hostile.asks("greet", options=hostile.of_project()), refresh=True)
    assert not hostile.mark.exists()


def test_known_archives_include_those_of_samples():
    sample = Path(mlworkbench.__file__).parent / "samples" / "spark-sweep" / "aml_config" / "conda_dependencies.yml"
    (pin,) = (line.strip(" -\n") for line in sample.read_text().splitlines() if "pyspark==" in line)
    assert pin in {f"{source['name']}=={source['version']}" for source in known_sources()}
    for source in known_sources():
        assert len(bytes.fromhex(source["sha256"])) == 32 and source["requires-python"]
        assert {Requirement(text).name for text in source["requires-dist"]} >= {"py4j"}


# -- build guard ---------------------------------------------------------------------------------------


def test_guard_interpreter_answers_queries_only(tmp_path):

    _, python = guard_options(find_uv(os.environ), run_uv, os.environ, tmp_path)
    mark = tmp_path / "mark"
    link = tmp_path / "link"
    link.symlink_to(python)
    code = f"open({str(mark)!r}, 'w')"
    for command in ([python, "-c", code], [str(link), "-I", "-c", code], [str(link), "-c", code]):
        assert subprocess.run(command, capture_output=True).returncode == 1
    assert not mark.exists()
    facts = {"sys_executable": sys.executable, "sys_base_executable": sys.executable, "sys_base_prefix": sys.prefix}
    facts |= {"virtualenv": {"scripts": "bin"}, "sys_path": sys.path, "scheme": {"scripts": sys.prefix}}
    question = f"import json; print(json.dumps({facts!r}))"
    answer = json.loads(subprocess.run([python, "-I", "-c", question], capture_output=True, check=True).stdout)
    assert answer.pop("sys_executable") == python
    assert sys.prefix not in json.dumps(answer) and answer["sys_base_executable"].startswith(f"{Path(python).parent}/")
    assert (
        Path(answer["sys_base_executable"]).parent.name == GUARD_FILE and Path(python).with_name(GUARD_FILE).is_file()
    )


def test_uv_that_builds_nevertheless_is_rejected(tmp_path):
    """Simulate a later uv that does not use the given interpreter, which would block builds."""

    def run(arguments, environ, folder):
        position = arguments.index("--python")
        return run_uv([*arguments[:position], "--python", sys.executable, *arguments[position + 2 :]], environ, folder)

    for _ in range(2):
        with pytest.raises(SolveError, match="cannot stop uv from running build scripts"):
            guard_options(find_uv(os.environ), run, os.environ, tmp_path)
