"""Source packages while dependencies are resolved: static metadata, consent, and no code of theirs without it."""

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
from mlworkbench.environments import sources
from mlworkbench.environments.build_guard import NOTHING, guard_words
from mlworkbench.environments.dependencies import Dependencies, Option
from mlworkbench.environments.local_files import digest_of
from mlworkbench.environments.lockfiles import read_lockfile
from mlworkbench.environments.own import pack
from mlworkbench.environments.pip import find_uv, run_uv
from mlworkbench.environments.sources import Builds, known_sources
from mlworkbench.errors import SolveError
from tests.e2e.package_index import about, sdist, wheel
from tests.e2e.package_index import serving as serving_index
from tests.unit.test_solve import HERE, LINUX, VERSION, Desk, names, serving

IN_TREE = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"


class Hostile(Desk):
    """A desk with a folder of packages, and a mark that their code leaves when it runs."""

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
        """A build backend of the package's own that works, with metadata that only it knows."""
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
        """The folder as the project names it."""
        return (
            Option(f"--find-links {self.links}", "f", 1, "--find-links", str(self.links)),
            Option("--no-index", "f", 2, "--no-index", ""),
        )

    def of_user(self) -> None:
        """The folder as the user's settings name it."""
        self.environ |= {"PIP_NO_INDEX": "true", "PIP_FIND_LINKS": str(self.links)}

    def asks(self, *pip: str, **more) -> Dependencies:
        return self.dependencies(pip=pip, **more)


@pytest.fixture(scope="session")
def tool_wheels(tmp_path_factory) -> Path:
    """uv as targets get it where no index has it: to pack it takes seconds."""
    folder = tmp_path_factory.mktemp("packed")
    pack("uv", metadata.version("uv"), LINUX, VERSION, folder)
    return folder / "tool-wheels"


@pytest.fixture
def hostile(tmp_path, tool_wheels) -> Iterator[Hostile]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "PYTHON"))}
    desk = Hostile(tmp_path, {**kept, "PIP_CONFIG_FILE": os.devnull})
    if tool_wheels.exists():
        shutil.copytree(tool_wheels, desk.cache / "tool-wheels", copy_function=os.link)
    with desk.servers:
        yield desk


def refused(desk: Hostile, asked: Dependencies, **more) -> SolveError:
    with pytest.raises(SolveError) as caught:
        desk.solve(asked, host=HERE, **more)
    return caught.value


# -- attacks -------------------------------------------------------------------------------------------


def by_setup(desk: Hostile) -> str:
    sdist(desk.links, "greet", "2.0", {"PKG-INFO": about("greet", "2.0"), "setup.py": desk.setup("greet")})
    return "greet"


def by_backend(desk: Hostile) -> str:
    desk.dynamic()
    return "greet>1"


def by_requirement_of_the_build(desk: Hostile) -> str:
    """A program of a build requirement, under a name that a build looks for."""
    needs = "[build-system]\nrequires = ['tool']\nbuild-backend = 'tool'\n"
    sdist(desk.links, "greet", "2.0", {"PKG-INFO": about("greet", "2.0"), "pyproject.toml": needs})
    info = "tool-1.0.dist-info"
    with zipfile.ZipFile(desk.links / "tool-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", about("tool", "1.0"))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        archive.writestr("tool.py", desk.leave)
    return "greet"


def by_file(desk: Hostile) -> str:
    desk.dynamic(folder=desk.root)
    return "./greet-2.0.tar.gz"


def by_repository(desk: Hostile) -> str:
    folder = desk.root.parent / "repository"
    folder.mkdir()
    (folder / "setup.py").write_text(desk.setup("greet"))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["update-server-info"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    return f"greet @ git+http://127.0.0.1:{desk.servers.enter_context(serving(folder))}/.git"


def by_dependency(desk: Hostile) -> str:
    desk.dynamic()
    wheel(desk.links, "outer", "1.0", "links", "greet")
    return "outer"


@pytest.mark.parametrize(
    "attack",
    [by_setup, by_backend, by_requirement_of_the_build, by_file, by_repository, by_dependency],
)
def test_resolving_runs_no_code_of_a_package(hostile, attack):
    line = attack(hostile)
    try:
        hostile.solve(hostile.asks(line, options=hostile.of_project()), host=HERE)
        error = None
    except SolveError as caught:
        error = caught
    assert not hostile.mark.exists(), hostile.mark.read_text()
    assert error is not None and "greet" in error.message and "--allow-build greet" in error.hint


def test_a_project_that_wants_no_wheel_gets_no_build_here(hostile):
    """The wheel's metadata will do; the source package is the one that is installed there."""
    hostile.dynamic()
    wheel(hostile.links, "greet", "2.0", "links")
    options = (*hostile.of_project(), Option("--no-binary greet", "f", 3, "--no-binary", "greet"))
    (one,) = hostile.solve(hostile.asks("greet", options=options), host=HERE).lock["pip"]
    assert one["file"] == "greet-2.0.tar.gz" and not hostile.mark.exists()


def test_a_file_of_a_server_runs_no_code(hostile):
    """With a password, which nobody is shown."""
    hostile.dynamic()
    with serving(hostile.links, "somebody:hush") as port:
        line = f"greet @ http://somebody:hush@127.0.0.1:{port}/greet-2.0.tar.gz"
        error = refused(hostile, hostile.asks(line))
    assert not hostile.mark.exists()
    assert error.message.startswith(f"greet @ http://127.0.0.1:{port}/greet-2.0.tar.gz is a source package")
    assert "hush" not in error.message + error.hint


def test_an_address_without_a_name_is_refused(hostile):
    shutil.copy(hostile.dynamic(folder=hostile.root.parent), hostile.root / "main.tar.gz")
    error = refused(hostile, hostile.asks("./main.tar.gz"))
    assert not hostile.mark.exists()
    assert "by URL only" in error.message and "NAME @ URL" in error.hint


def test_a_lock_of_uv_runs_no_code_of_a_repository(hostile):
    line = by_repository(hostile)
    pyproject = '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.9"\ndependencies = ["%s"]\n'
    (hostile.root / "pyproject.toml").write_text(pyproject % line)

    locked = run_uv(["lock", "--quiet"], {**hostile.environ, "UV_CACHE_DIR": "maker"}, hostile.root)
    assert locked.returncode == 0, locked.stderr
    hostile.mark.unlink()
    error = refused(hostile, read_lockfile(hostile.root / "uv.lock", hostile.root))
    assert not hostile.mark.exists() and "greet" in error.message


# -- versions ------------------------------------------------------------------------------------------


def test_static_metadata_is_enough(hostile):
    """As PKG-INFO or as pyproject.toml; with its dependencies, and from wherever it comes."""
    static = {"PKG-INFO": about("greet", "2.0", "words", metadata="2.2"), "setup.py": hostile.leave}
    sdist(hostile.links, "greet", "2.0", static)
    sdist(hostile.root, "greet", "2.0", static)
    project = "[project]\nname = 'plain'\nversion = '1.0'\ndependencies = ['words']\n" + IN_TREE
    files = {"PKG-INFO": about("plain", "1.0"), "pyproject.toml": project, "backend.py": hostile.leave}
    sdist(hostile.links, "plain", "1.0", files)
    wheel(hostile.links, "greet", "1.0", "links")
    for lines in (["greet", "plain"], ["./greet-2.0.tar.gz", "plain"]):
        lock = hostile.solve(hostile.asks(*lines, options=hostile.of_project()), host=HERE).lock
        assert names(lock["pip"]) == {"greet": "2.0", "plain": "1.0", "words": "1.0"}
        assert next(one["file"] for one in lock["pip"] if one["name"] == "greet") == "greet-2.0.tar.gz"
    assert not hostile.mark.exists()


def test_a_dynamic_dependency_list_is_not_static(hostile):
    text = about("greet", "2.0", metadata="2.2") + "Dynamic: Requires-Dist\n"
    sdist(hostile.links, "greet", "2.0", {"PKG-INFO": text, "setup.py": hostile.setup("greet")})
    error = refused(hostile, hostile.asks("greet", options=hostile.of_project()))
    assert "greet 2.0 is a source package without static metadata" in error.message and not hostile.mark.exists()


def test_a_version_without_a_wheel_is_not_replaced(hostile):
    wheel(hostile.links, "greet", "1.0", "links")
    hostile.dynamic()
    error = refused(hostile, hostile.asks("greet", options=hostile.of_project()))
    assert error.message == (
        "greet 2.0 is a source package without static metadata; resolving it would run its build script"
    )
    assert error.hint == (
        "use 1.0, the newest version with a wheel; or allow the build script to run on this machine:"
        " --allow-build greet (before submitting in the browser, run: mlw experiment prepare --allow-build greet)"
    )
    lock = hostile.solve(hostile.asks("greet<2", options=hostile.of_project()), host=HERE).lock
    assert names(lock["pip"]) == {"greet": "1.0"}


# -- consent -------------------------------------------------------------------------------------------


def allow(remembered: tuple[str, ...] = (), named: tuple[str, ...] = (), **more):

    return Builds(frozenset(remembered), frozenset(named), **more)


def test_a_build_that_was_allowed_is_run_and_no_other(hostile):
    hostile.dynamic()
    other = {"PKG-INFO": about("other", "1.0"), "pyproject.toml": IN_TREE, "backend.py": "raise SystemExit('other')\n"}
    sdist(hostile.links, "other", "1.0", other)
    hostile.of_user()
    error = refused(hostile, hostile.asks("greet", "other"), builds=allow(["greet"]))
    assert error.message.startswith("other 1.0 is a source package") and error.hint.endswith(
        "--allow-build other (for the browser: mlw settings add allowed-builds other)"
    )
    hostile.mark.unlink(missing_ok=True)
    shutil.rmtree(hostile.environ["UV_CACHE_DIR"])
    lock = hostile.solve(hostile.asks("greet"), host=HERE, builds=allow(["greet"])).lock
    assert names(lock["pip"]) == {"greet": "2.0", "words": "1.0"} and hostile.mark.exists()


def test_consent_in_the_settings_is_for_the_users_own_indexes(hostile):
    hostile.dynamic()
    asked = hostile.asks("greet", options=hostile.of_project())
    error = refused(hostile, asked, builds=allow(["greet"]))
    assert "only for packages from your own indexes" in error.hint and not hostile.mark.exists()
    hostile.dynamic(folder=hostile.root)
    refused(hostile, hostile.asks("./greet-2.0.tar.gz"), builds=allow(["greet"]))
    assert not hostile.mark.exists()
    for one in (asked, hostile.asks("./greet-2.0.tar.gz", options=hostile.of_project())):
        lock = hostile.solve(one, host=HERE, builds=allow(named=["greet"])).lock
        assert names(lock["pip"]) == {"greet": "2.0", "words": "1.0"}
    assert hostile.mark.exists()
    # So that a submit in the browser, which has no options, can follow what a command has resolved.
    hostile.mark.unlink()
    assert names(hostile.solve(asked, host=HERE).lock["pip"]) == {"greet": "2.0", "words": "1.0"}
    assert not hostile.mark.exists()


def test_a_dry_run_builds_nothing(hostile):
    hostile.dynamic()
    hostile.of_user()
    error = refused(hostile, hostile.asks("greet"), builds=allow(["greet"], dry=True))
    assert not hostile.mark.exists() and "mlw experiment prepare --allow-build greet" in error.hint
    first = hostile.solve(hostile.asks("greet"), host=HERE, builds=allow(["greet"]))
    hostile.mark.unlink()
    again = hostile.solve(hostile.asks("greet"), host=HERE, builds=allow(["greet"], dry=True))
    assert again.kept and again.lock == first.lock and not hostile.mark.exists()


def test_what_was_resolved_before_is_asked_again_when_consent_changes(hostile):
    hostile.of_user()
    hostile.solve(hostile.asks("words"), host=HERE)
    assert hostile.solve(hostile.asks("words"), host=HERE).kept
    assert not hostile.solve(hostile.asks("words"), host=HERE, builds=allow(["greet"])).kept
    assert hostile.solve(hostile.asks("words"), host=HERE, builds=allow(named=["greet"])).kept


def test_a_build_that_fails_says_why(hostile):
    broken = {"PKG-INFO": about("greet", "2.0"), "pyproject.toml": IN_TREE, "backend.py": "raise SystemExit('no luck')"}
    sdist(hostile.links, "greet", "2.0", broken)
    hostile.of_user()
    error = refused(hostile, hostile.asks("greet"), builds=allow(["greet"]))
    assert "Failed to" in error.message and "greet==2.0" in error.message and "no luck" in error.message


def test_a_build_without_a_cache_is_found_again(hostile):
    hostile.dynamic()
    hostile.of_user()
    hostile.environ["UV_NO_CACHE"] = "1"
    lock = hostile.solve(hostile.asks("greet"), host=HERE, builds=allow(["greet"])).lock
    assert names(lock["pip"]) == {"greet": "2.0", "words": "1.0"}


@pytest.mark.parametrize("keeps", [True, False])
def test_a_build_of_an_index_is_found_again(hostile, keeps):
    """Also where the index has its files sent anew each time. The lock names the index."""
    path = hostile.dynamic()
    with serving_index(hostile.links.parent, key="somebody:hush") as index:
        index.keeps = keeps
        hostile.environ["PIP_INDEX_URL"] = f"{index.url_with_key}/{hostile.links.name}/simple"
        lock = hostile.solve(hostile.asks("greet"), host=HERE, builds=allow(["greet"])).lock
    assert names(lock["pip"]) == {"greet": "2.0", "words": "1.0"}
    greet = next(one for one in lock["pip"] if one["name"] == "greet")
    assert greet["url"] == f"{index.url}/{hostile.links.name}/{path.name}" and greet["sha256"] == digest_of(path)
    assert greet["private"] and "hush" not in json.dumps(lock)


# -- archives that are known ---------------------------------------------------------------------------


def test_metadata_of_a_known_archive_counts_for_that_archive_only(hostile, monkeypatch):

    path = hostile.dynamic()
    row = {"name": "greet", "version": "2.0", "sha256": digest_of(path), "requires-dist": ["words"]}
    row |= {"requires-python": ">=3.6", "provides-extra": []}
    monkeypatch.setattr(sources, "known_sources", lambda: (row,))
    lock = hostile.solve(hostile.asks("greet", options=hostile.of_project()), host=HERE).lock
    assert names(lock["pip"]) == {"greet": "2.0", "words": "1.0"}
    monkeypatch.setattr(sources, "known_sources", lambda: ({**row, "sha256": "0" * 64},))
    refused(hostile, hostile.asks("greet", options=hostile.of_project()), refresh=True)
    assert not hostile.mark.exists()


def test_the_list_of_known_archives_has_those_of_the_samples():
    sample = Path(mlworkbench.__file__).parent / "samples" / "spark-sweep" / "aml_config" / "conda_dependencies.yml"
    (pin,) = (line.strip(" -\n") for line in sample.read_text().splitlines() if "pyspark==" in line)
    assert pin in {f"{one['name']}=={one['version']}" for one in known_sources()}
    for one in known_sources():
        assert len(bytes.fromhex(one["sha256"])) == 32 and one["requires-python"]
        assert {Requirement(text).name for text in one["requires-dist"]} >= {"py4j"}


# -- the guard -----------------------------------------------------------------------------------------


def test_the_interpreter_of_the_guard_only_answers_for_itself(tmp_path):

    _, python = guard_words(find_uv(os.environ), run_uv, os.environ, tmp_path)
    mark = tmp_path / "mark"
    link = tmp_path / "link"
    link.symlink_to(python)
    code = f"open({str(mark)!r}, 'w')"
    for words in ([python, "-c", code], [str(link), "-I", "-c", code], [str(link), "-c", code]):
        assert subprocess.run(words, capture_output=True).returncode == 1
    assert not mark.exists()
    facts = {"sys_executable": sys.executable, "sys_base_executable": sys.executable, "sys_base_prefix": sys.prefix}
    facts |= {"virtualenv": {"scripts": "bin"}, "sys_path": sys.path, "scheme": {"scripts": sys.prefix}}
    question = f"import json; print(json.dumps({facts!r}))"
    answer = json.loads(subprocess.run([python, "-I", "-c", question], capture_output=True, check=True).stdout)
    assert answer.pop("sys_executable") == python
    assert sys.prefix not in json.dumps(answer) and answer["sys_base_executable"].startswith(f"{Path(python).parent}/")
    assert Path(answer["sys_base_executable"]).parent.name == NOTHING and Path(python).with_name(NOTHING).is_file()


def test_a_uv_that_builds_all_the_same_is_not_used(tmp_path):
    """As a later version might, which looks for a Python by itself."""

    def run(words, environ, folder):
        at = words.index("--python")
        return run_uv([*words[:at], "--python", sys.executable, *words[at + 2 :]], environ, folder)

    for _ in range(2):
        with pytest.raises(SolveError, match="cannot stop uv from running build scripts"):
            guard_words(find_uv(os.environ), run, os.environ, tmp_path)
