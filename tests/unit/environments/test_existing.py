"""Select the Python that runs the script, with real interpreters and fake programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlworkbench.environments.existing import (
    UNCHECKED,
    environment_without_mlw,
    existing,
    find_python,
    inspect_python,
    locate_python,
    path_without_mlw,
)
from mlworkbench.environments.selection_request import EnvironmentRequest
from mlworkbench.errors import ConfigError
from mlworkbench.model import Compute, Interpreter, RunConfig
from mlworkbench.paths import Root, UserPaths

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pretends with shell scripts")

REAL = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
PYENV = Path.home() / ".pyenv"


def write_fake_python(path: Path, version: str, counter: Path | None = None) -> Path:
    """Write a program that prints version facts like a Python of that version. Log each call to ``counter``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = f"echo x >> {counter}\n" if counter else ""
    path.write_text(f"#!/bin/sh\n{count}printf '%s %s %s %s' {version.replace('.', ' ')} '{path}'\n")
    path.chmod(0o755)
    return path


def broken(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\necho 'pyenv: python: command not found' >&2\nexit 127\n")
    path.chmod(0o755)
    return path


def env(*folders: Path) -> dict[str, str]:
    return {"PATH": os.pathsep.join(map(str, folders)), "HOME": "/nonexistent"}


# -- search ----------------------------------------------------------------------------------------


def test_python_goes_before_python3_whatever_the_folder(tmp_path: Path) -> None:
    write_fake_python(tmp_path / "a" / "python3", "3.9.1")
    python = write_fake_python(tmp_path / "b" / "python", "3.11.7")
    interpreter = find_python(None, env(tmp_path / "a", tmp_path / "b"), None)
    assert interpreter == Interpreter(str(python), (3, 11, 7), "first python on PATH")


def test_python3_where_there_is_no_python(tmp_path: Path) -> None:
    python = write_fake_python(tmp_path / "python3", "3.9.1")
    assert find_python(None, env(tmp_path), None) == Interpreter(str(python), (3, 9, 1), "first python3 on PATH")


def test_original_default_is_a_search(tmp_path: Path) -> None:
    """Every local.compute of the original contains `pythonLocation: python`; Debian has only python3."""
    python = write_fake_python(tmp_path / "python3", "3.9.1")
    assert find_python("python", env(tmp_path), None).path == str(python)


@pytest.mark.parametrize("old", ["2.7.18", "3.4.10"])
def test_too_old_python_is_skipped_and_reported(tmp_path: Path, old: str) -> None:
    write_fake_python(tmp_path / "python", old)
    python3 = write_fake_python(tmp_path / "python3", "3.9.1")
    interpreter = find_python(None, env(tmp_path), None)
    assert interpreter.path == str(python3)
    assert interpreter.reason == f"first python3 on PATH; {tmp_path}/python is Python {old}"


def test_broken_shim_is_skipped(tmp_path: Path) -> None:
    broken(tmp_path / "shims" / "python")
    broken(tmp_path / "shims" / "python3")
    python3 = write_fake_python(tmp_path / "bin" / "python3", "3.9.1")
    assert find_python(None, env(tmp_path / "shims", tmp_path / "bin"), None).path == str(python3)


def test_no_python(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("not a program")
    (tmp_path / "python3").mkdir()
    with pytest.raises(ConfigError) as caught:
        find_python(None, env(tmp_path), None)
    assert caught.value.message == "no Python on PATH: found neither python nor python3 outside the environment of mlw"
    assert "pythonLocation" in str(caught.value.hint)


def test_only_old_pythons(tmp_path: Path) -> None:
    write_fake_python(tmp_path / "python", "2.7.18")
    write_fake_python(tmp_path / "python3", "3.4.2")
    with pytest.raises(ConfigError) as caught:
        find_python(None, env(tmp_path), None)
    assert caught.value.message == (
        f"{tmp_path}/python is Python 2.7.18 and {tmp_path}/python3 is Python 3.4.2,"
        " but scripts require Python 3.5 or newer"
    )


def test_nothing_of_the_current_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "asked"
    write_fake_python(tmp_path / "project" / "python", "3.11.7", log)
    write_fake_python(tmp_path / "project" / "bin" / "python", "3.11.7", log)
    monkeypatch.chdir(tmp_path / "project")
    with pytest.raises(ConfigError, match="no Python on PATH"):
        find_python(None, {"PATH": "::.:bin"}, tmp_path / "project")
    assert not log.exists()


# -- pythonLocation --------------------------------------------------------------------------------


def test_location_forms(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    inside = write_fake_python(project / ".venv" / "bin" / "python", "3.10.1")
    at_home = write_fake_python(home / "py" / "python", "3.11.1")
    program = write_fake_python(tmp_path / "bin" / "python3.12", "3.12.1")
    environ = {"PATH": str(tmp_path / "bin"), "HOME": str(home)}
    for location, path, reason in (
        (".venv/bin/python", inside, "pythonLocation"),
        (str(inside), inside, "pythonLocation"),
        ("~/py/python", at_home, "pythonLocation"),
        ("python3.12", program, "pythonLocation, first python3.12 on PATH"),
    ):
        assert locate_python(location, environ, project) == (str(path), reason)
        assert find_python(location, environ, project).path == str(path)


def test_locating_runs_nothing(tmp_path: Path) -> None:
    log = tmp_path / "asked"
    python = write_fake_python(tmp_path / "python", "3.11.7", log)
    assert locate_python(str(python), env(), tmp_path)[0] == str(python)
    assert locate_python(None, env(tmp_path), tmp_path) == (str(python), "first python on PATH")
    assert not log.exists()


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("python3.99", "pythonLocation 'python3.99' is not on PATH"),
        ("no/python", "pythonLocation 'no/python' resolves to {}/no/python, which is not an executable file"),
        ("./folder", "pythonLocation './folder' resolves to {}/folder, which is not an executable file"),
        ("./broken", "pythonLocation './broken' resolves to {}/broken, which is not a working Python interpreter"),
        ("./old", "{}/old is Python 2.7.18, but scripts require Python 3.5 or newer"),
    ],
)
def test_invalid_location(tmp_path: Path, location: str, message: str) -> None:
    (tmp_path / "folder").mkdir()
    broken(tmp_path / "broken")
    write_fake_python(tmp_path / "old", "2.7.18")
    with pytest.raises(ConfigError) as caught:
        find_python(location, env(tmp_path / "empty"), tmp_path)
    assert caught.value.message == message.format(tmp_path)
    assert "set pythonLocation in the .compute file" in str(caught.value.hint)


# -- real interpreters -----------------------------------------------------------------------------


@pytest.mark.parametrize("python", sorted(PYENV.glob("versions/*/bin/python")) or [Path(REAL)], ids=str)
def test_real_interpreters(python: Path) -> None:
    result = subprocess.run(
        [python, "-c", "import sys; print('.'.join(map(str, sys.version_info[:3])))"],
        capture_output=True,
        text=True,
        check=True,
    )
    version = tuple(map(int, result.stdout.split(".")))
    if version < (3, 5):
        with pytest.raises(
            ConfigError, match=f"{python} is Python {result.stdout.strip()}, but scripts require Python 3.5"
        ):
            find_python(str(python), dict(os.environ), None)
    else:
        assert find_python(str(python), dict(os.environ), None) == Interpreter(
            str(python), (version[0], version[1], version[2]), "pythonLocation"
        )


def test_virtual_environment_stays_one(tmp_path: Path) -> None:
    """The python of a virtual environment is a link. Resolving the link would lose the environment's packages."""
    subprocess.run([REAL, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    for _ in range(2):
        assert find_python(str(python), dict(os.environ), None, tmp_path / "cache.json").path == str(python)


def test_project_cannot_inject_code(tmp_path: Path) -> None:
    """The version query runs in the project folder: neither its modules nor PYTHON* variables may affect it."""
    for name in ("sitecustomize", "usercustomize", "encodings", "sys"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'slipped')!r}, 'w')")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": str(tmp_path / "sys.py")}
    assert find_python(REAL, environ, tmp_path).version == sys.version_info[:3]
    assert not (tmp_path / "slipped").exists()


@pytest.mark.skipif(not (PYENV / "shims" / "python").exists(), reason="needs pyenv")
def test_pyenv_shim_is_resolved(tmp_path: Path) -> None:
    versions = sorted(path.name for path in (PYENV / "versions").glob("3.*"))
    environ = {"PATH": f"{PYENV}/shims:/usr/bin:/bin", "HOME": str(Path.home()), "PYENV_ROOT": str(PYENV)}
    cache = tmp_path / "cache.json"
    for version in (versions[0], versions[-1], versions[0]):
        (tmp_path / ".python-version").write_text(version + "\n")
        for _ in range(2):
            interpreter = find_python(None, environ, tmp_path, cache)
            assert interpreter.version == tuple(map(int, version.split(".")))
            assert Path(interpreter.path).is_relative_to(PYENV / "versions" / version)


# -- cache -----------------------------------------------------------------------------------------


def test_version_is_cached_until_change(tmp_path: Path) -> None:
    log, cache = tmp_path / "asked", tmp_path / "deep" / "cache.json"
    python = write_fake_python(tmp_path / "bin" / "python", "3.11.7", log)

    def ask() -> tuple[tuple[int, int, int], int]:
        version = find_python(None, env(tmp_path / "bin"), tmp_path, cache).version
        return version, log.read_text().count("x")

    assert ask() == ((3, 11, 7), 1)
    assert ask() == ((3, 11, 7), 1)
    write_fake_python(python, "3.12.10", log)
    assert ask() == ((3, 12, 10), 2)
    other = write_fake_python(tmp_path / "other", "3.13.1", log)
    python.unlink()
    python.symlink_to(other)
    assert ask() == ((3, 13, 1), 3)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"cache": 2}', b'{"cache": 1, "entries": []}', b"\xff", b"[" * 100_000]
)
def test_damaged_cache_does_not_matter(tmp_path: Path, content: bytes) -> None:
    cache = tmp_path / "cache.json"
    cache.write_bytes(content)
    write_fake_python(tmp_path / "python", "3.11.7")
    assert find_python(None, env(tmp_path), None, cache).version == (3, 11, 7)
    assert list(json.loads(cache.read_bytes())["entries"]) == [str(tmp_path / "python")]


def test_falsified_cache_entry_is_ignored(tmp_path: Path) -> None:
    cache = tmp_path / "cache.json"
    python = write_fake_python(tmp_path / "python", "3.11.7")
    find_python(None, env(tmp_path), None, cache)
    data = json.loads(cache.read_bytes())
    for version in ("3.11", [3, 11], [3, 11, "x"], None):
        data["entries"][str(python)]["version"] = version
        cache.write_text(json.dumps(data))
        assert find_python(None, env(tmp_path), None, cache).version == (3, 11, 7)


def test_unwritable_cache_does_not_matter(tmp_path: Path) -> None:
    write_fake_python(tmp_path / "python", "3.11.7")
    (tmp_path / "file").write_text("")
    assert find_python(None, env(tmp_path), None, tmp_path / "file" / "cache.json").version == (3, 11, 7)


# -- mlw's own environment -------------------------------------------------------------------------


def test_own_environment_is_removed(tmp_path: Path) -> None:
    """mlw runs in a real virtual environment, and PATH contains its folder and a link to it."""
    prefix = tmp_path / "own"
    subprocess.run([REAL, "-m", "venv", "--without-pip", prefix], check=True)
    (tmp_path / "link").symlink_to(prefix)
    source = Path(__file__).parents[3] / "src"
    question = (
        f"import sys, os; sys.path.insert(0, {str(source)!r}); import mlworkbench.environments.existing as e, json;"
        "left = e.environment_without_mlw(os.environ);"
        "print(json.dumps([left['PATH'], left.get('VIRTUAL_ENV'), e.find_python(None, os.environ, None).path]))"
    )
    shutil.copy(write_fake_python(tmp_path / "bin" / "python", "3.11.7"), tmp_path / "bin" / "python3")
    environ = {"PATH": f"{prefix}/bin:{tmp_path}/link/bin:{tmp_path}/bin:/x", "VIRTUAL_ENV": str(prefix)}
    result = subprocess.run([prefix / "bin" / "python", "-c", question], env=environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [f"{tmp_path}/bin:/x", None, str(tmp_path / "bin" / "python")]


def test_other_environments_stay() -> None:
    environ = {"PATH": "/project/.venv/bin:/usr/bin", "VIRTUAL_ENV": "/project/.venv", "X": "1"}
    assert environment_without_mlw(environ) == environ
    assert path_without_mlw({}) == os.defpath


def test_existing_environment(tmp_path: Path) -> None:
    """The user's Python is used unchanged: nothing to build, nothing prepended to PATH."""
    python = write_fake_python(tmp_path / "bin" / "python", "3.11.7")
    site = EnvironmentRequest(
        root=tmp_path,
        runconfig=RunConfig("local", "local"),
        compute=Compute("local", "local", python_location=str(python)),
        paths=UserPaths(tmp_path),
        environ={"PATH": "/usr/bin"},
        target=lambda: Root(str(tmp_path)),
    )
    settled = existing(site)
    assert settled.lock == {"kind": "existing", "python": str(python), "version": "3.11.7"}
    assert (settled.interpreter.path, settled.path, settled.mounts, settled.variables) == (str(python), (), (), {})


# -- inspection without starting programs ----------------------------------------------------------


def test_inspection_starts_no_program_of_the_project(tmp_path: Path) -> None:
    """Inspection starts no program that pythonLocation names, by path or by name. It uses cached results of runs."""
    cache, python = tmp_path / "cache.json", write_fake_python(tmp_path / "bin" / "python9", "3.9.1")
    for location, reason in ((str(python), "pythonLocation"), ("python9", "pythonLocation, first python9 on PATH")):
        interpreter = inspect_python(location, env(tmp_path / "bin"), tmp_path / "project", cache)
        assert interpreter == Interpreter(str(python), UNCHECKED, f"{reason}; not checked")
    assert not cache.exists()
    (tmp_path / "project").mkdir()
    find_python(str(python), env(), tmp_path / "project", cache)
    assert inspect_python(str(python), env(), tmp_path / "project", cache).version == (3, 9, 1)


INDIRECT = "; not checked: a script or shim could start a program of the project"


def linked(path: Path, program: str = REAL) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(program)
    return path


def test_inspection_starts_programs_outside_the_project_only(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project_python = linked(project / ".venv" / "bin" / "python", str(shutil.copy(REAL, tmp_path / "python3")))
    outside = linked(tmp_path / "bin" / "python")
    assert inspect_python(None, env(outside.parent, project_python.parent), project).version == sys.version_info[:3]
    inside = project / "bin" / "python"
    inside.parent.mkdir()
    shutil.copy(REAL, inside)
    interpreter = inspect_python(None, env(inside.parent, outside.parent), project)
    assert interpreter == Interpreter(str(inside), UNCHECKED, "first python on PATH; not checked")


@pytest.mark.parametrize("kind", ["script", "asdf", "pyenv", "rye", "mise"])
def test_inspection_starts_no_shim(tmp_path: Path, kind: str) -> None:
    """A shim starts what a project file selects: .tool-versions, mise.toml, .python-version."""
    log, project = tmp_path / "asked", tmp_path / "project"
    project.mkdir()
    folder = tmp_path / (f".{kind}/shims" if kind in ("asdf", "pyenv", "rye") else "bin")
    if kind == "mise":  # mise links every program name to itself
        linked(folder / "python", str(write_fake_python(tmp_path / "mise", "3.10.1", log)))
    elif kind == "rye":
        linked(folder / "python")
    else:
        write_fake_python(folder / "python", "3.10.1", log)
    (tmp_path / ".pyenv" / "versions").mkdir(parents=True)
    environ = env(folder, linked(tmp_path / "real" / "python").parent)
    interpreter = inspect_python(None, environ, project)
    assert interpreter == Interpreter(str(folder / "python"), UNCHECKED, f"first python on PATH{INDIRECT}")
    assert not log.exists()
    assert find_python(None, environ, project).version > UNCHECKED  # as documented, a run may start the shim


def test_link_to_other_program_is_not_started(tmp_path: Path) -> None:
    shutil.copy("/bin/echo", tmp_path / "mise")
    linked(tmp_path / "bin" / "python", str(tmp_path / "mise"))
    assert inspect_python(None, env(tmp_path / "bin"), tmp_path / "project").reason.endswith(INDIRECT)


def test_inspection_does_not_run_in_the_project_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    run = subprocess.run

    def noted(command: list[str], **more: object) -> object:
        started.append((more["cwd"], more["env"]["PWD"]))  # type: ignore[index]
        return run(command, **more)  # type: ignore[call-overload]

    monkeypatch.setattr("mlworkbench.environments.existing.subprocess.run", noted)
    monkeypatch.chdir(tmp_path)
    linked(tmp_path / "bin" / "python")
    environ = {**env(tmp_path / "bin"), "PWD": str(tmp_path)}
    assert inspect_python(None, environ, tmp_path / "project").version == sys.version_info[:3]
    assert started == [("/", "/")]
