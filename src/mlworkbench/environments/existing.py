"""Find an existing Python interpreter and check that it is usable. This module installs nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..model import Interpreter
from ..remote.shared.program_lookup import is_in_project, is_inside, is_shim
from ..remote.shared.untrusted_json import parse_json
from .notebook_python import jupyter_note, kernel_python
from .selection_request import EnvironmentRequest, ResolvedEnvironment

MIN_VERSION = (3, 5)  # required by the in-run library
Version = tuple[int, int, int]

_TIMEOUT = 20.0
_NAMES = ("python", "python3", "py") if os.name == "nt" else ("python", "python3")
# Works in every Python version since 2.4.
_VERSION_CODE = "import sys; sys.stdout.write('%d %d %d %s' % (tuple(sys.version_info[:3]) + (sys.executable,)))"
UNCHECKED: Version = (0, 0, 0)  # version of a Python that was found but not started
_SHIM_NOTE = ": a script or shim could start a program of the project"
_CACHE_VERSION = 1
_CACHE_ENTRIES = 64


def existing(site: EnvironmentRequest) -> ResolvedEnvironment:
    """Return the user-managed environment on this machine, which needs no resolving or installing."""
    find = inspect_python if site.dry_run else find_python
    location = site.compute.python_location
    kernel = kernel_python(site.environ) if is_path_search(location) else None
    interpreter = find(kernel or location, site.environ, site.root, site.paths.interpreters)
    if kernel:
        interpreter = replace(interpreter, reason="Python of the notebook kernel")
    elif is_path_search(location) and (note := jupyter_note(interpreter, site.environ)):
        site.tell(note)
    version = None if interpreter.version == UNCHECKED else _dotted(interpreter.version)
    lock = {"kind": "existing", "python": interpreter.path, "version": version}
    return ResolvedEnvironment(lock, interpreter)


# -- which one -------------------------------------------------------------------------------------


def find_python(
    python_location: str | None, environ: Mapping[str, str], base: Path | None, cache: Path | None = None
) -> Interpreter:
    """Return the Python at ``pythonLocation``, else the first usable one on PATH.

    The interpreter is run once to get its version. ``base`` is the project folder; ``cache`` is a file
    with earlier results. An untrusted project may set ``pythonLocation`` to any program, so this may be
    called only by commands that are documented to run project code.
    """
    return _find(python_location, environ, base, _VersionProbe(environ, base, cache))


def inspect_python(
    python_location: str | None, environ: Mapping[str, str], base: Path | None, cache: Path | None = None
) -> Interpreter:
    """Return the result of ``find_python`` without starting any program that the project controls.

    For inspection commands. A Python that was never started has the version ``UNCHECKED``. Nothing is
    started in the project folder.
    """
    probe = _VersionProbe(environ, base, cache, inspect_only=True, is_configured=not is_path_search(python_location))
    return _find(python_location, environ, base, probe)


def _is_project_controlled(path: str, base: Path | None) -> bool:
    """Return whether the project controls what the program runs.

    The program may be inside the project, or may start another program that a project file names.
    """
    return is_in_project(path) or (base is not None and is_inside(path, str(base))) or _is_indirect(path)


def _is_indirect(path: str) -> bool:
    """Return whether the program is a shim, script, or unreadable file, so it may start another one."""
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!" or is_shim(path)
    except OSError:
        return True


def _find(
    python_location: str | None, environ: Mapping[str, str], base: Path | None, probe: _VersionProbe
) -> Interpreter:
    if is_path_search(python_location):
        return _search(environ, probe)
    path, reason = locate_python(python_location, environ, base)
    answer = probe.probe(path)
    if answer is None:
        raise ConfigError(
            f"pythonLocation {python_location!r} resolves to {path}, which is not a working Python interpreter",
            "set pythonLocation in the .compute file to a Python interpreter",
        )
    if answer[1] == UNCHECKED:
        return _unchecked(path, reason)
    if answer[1][:2] < MIN_VERSION:
        raise _too_old_error([(path, answer[1])])
    return Interpreter(answer[0], answer[1], reason)


def _unchecked(path: str, reason: str) -> Interpreter:
    return Interpreter(path, UNCHECKED, f"{reason}; not checked")


def locate_python(python_location: str | None, environ: Mapping[str, str], base: Path | None) -> tuple[str, str]:
    """Return the path of the Python that would be tried first, and the reason. Nothing is run."""
    if python_location is None or is_path_search(python_location):
        for name in _NAMES:
            for path in _on_path(name, environ):
                return path, _describe_first(name, environ)
        raise _not_found_error()
    if os.sep in python_location or "/" in python_location or python_location.startswith("~"):
        path = os.path.join(base or os.getcwd(), _expand_home(python_location, environ))
        path = os.path.abspath(path)
        if not _is_program(path):
            raise ConfigError(
                f"pythonLocation {python_location!r} resolves to {path}, which is not an executable file",
                "set pythonLocation in the .compute file to a Python interpreter",
            )
        return path, "pythonLocation"
    for path in _on_path(python_location, environ):
        return path, f"pythonLocation, first {python_location} on PATH"
    raise ConfigError(
        f"pythonLocation {python_location!r} is not on PATH",
        "set pythonLocation in the .compute file to the full path of a Python interpreter",
    )


def is_path_search(python_location: str | None) -> bool:
    """Return whether to search PATH.

    The original wrote ``pythonLocation: python`` into every project as a default.
    """
    return python_location is None or python_location == "python"


def _search(environ: Mapping[str, str], probe: _VersionProbe) -> Interpreter:
    too_old: list[tuple[str, Version]] = []
    for name in _NAMES:
        for path in _on_path(name, environ):
            answer = probe.probe(path)
            if answer is None:
                continue  # a shim without a Python; try the next program on PATH
            if answer[1] == UNCHECKED:
                interpreter = _unchecked(path, _describe_first(name, environ))
                return (
                    replace(interpreter, reason=interpreter.reason + _SHIM_NOTE) if _is_indirect(path) else interpreter
                )
            if answer[1][:2] >= MIN_VERSION:
                reason = _describe_first(name, environ)
                if too_old:
                    reason += "; " + "; ".join(f"{old} is Python {_dotted(version)}" for old, version in too_old)
                return Interpreter(answer[0], answer[1], reason)
            too_old.append((path, answer[1]))
            break
    raise _too_old_error(too_old) if too_old else _not_found_error()


def _describe_first(name: str, environ: Mapping[str, str]) -> str:
    skipped = path_without_mlw(environ) != environ.get("PATH", os.defpath)
    return f"first {name} on PATH" + (f" outside the environment of mlw ({sys.prefix})" if skipped else "")


def _too_old_error(interpreters: list[tuple[str, Version]]) -> ConfigError:
    description = " and ".join(f"{path} is Python {_dotted(version)}" for path, version in interpreters)
    return ConfigError(
        f"{description}, but scripts require Python {MIN_VERSION[0]}.{MIN_VERSION[1]} or newer",
        "set pythonLocation in the .compute file to a newer Python",
    )


def _not_found_error() -> ConfigError:
    return ConfigError(
        f"no Python on PATH: found neither {' nor '.join(_NAMES)} outside the environment of mlw",
        "install Python, or set pythonLocation in the .compute file",
    )


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


# -- PATH ------------------------------------------------------------------------------------------


def path_without_mlw(environ: Mapping[str, str]) -> str:
    """Return PATH without mlw's own virtual environment, whose packages are not the user's."""
    entries = environ.get("PATH", os.defpath).split(os.pathsep)
    if sys.prefix == sys.base_prefix:
        return os.pathsep.join(entries)
    prefix = os.path.realpath(sys.prefix)
    return os.pathsep.join(entry for entry in entries if not _is_below(entry, prefix))


def environment_without_mlw(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables as if mlw's own virtual environment were not active."""
    variables = {**environ, "PATH": path_without_mlw(environ)}
    active = variables.get("VIRTUAL_ENV", "")
    if sys.prefix != sys.base_prefix and _is_below(active, os.path.realpath(sys.prefix)):
        for name in ("VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT"):
            variables.pop(name, None)
    return variables


own_environment_left = environment_without_mlw  # former name, kept for plugins until version 1.0


def _is_below(entry: str, folder: str) -> bool:
    return os.path.isabs(entry) and (os.path.realpath(entry) + os.sep).startswith(folder + os.sep)


def _on_path(name: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the programs with the given name, in PATH order.

    Relative entries are skipped: mlw runs inside projects and must not run a project's programs while
    inspecting it.
    """
    suffix = ".exe" if os.name == "nt" and not name.lower().endswith(".exe") else ""
    for entry in path_without_mlw(environ).split(os.pathsep):
        path = os.path.join(entry, name + suffix)
        if os.path.isabs(entry) and _is_program(path):
            yield path


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _expand_home(path: str, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME")
    if home and (path == "~" or path.startswith("~/")):
        return home + path[1:]
    return os.path.expanduser(path)


# -- its version -----------------------------------------------------------------------------------


class _VersionProbe:
    """Query for the path and version of interpreters.

    Results are cached on disk until the program or the selection of its Python changes.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        base: Path | None,
        cache: Path | None,
        *,
        inspect_only: bool = False,
        is_configured: bool = False,
    ) -> None:
        self.environ = environment_without_mlw(environ)
        self.base = base
        self.cache = cache
        self.inspect_only = inspect_only  # start nothing that the project may control
        self.is_configured = is_configured  # the project sets pythonLocation

    def probe(self, path: str) -> tuple[str, Version] | None:
        """Return the real program (behind a pyenv shim) and its version.

        Returns None if the program does not respond like Python.
        """
        fingerprint = self._fingerprint(path)
        cached = _read_cached(self._load().get(path), fingerprint)
        if cached:
            return cached
        if self.inspect_only and (self.is_configured or _is_project_controlled(path, self.base)):
            return path, UNCHECKED
        answer = self._run(path)
        if answer is None:
            return None
        program, version = answer
        is_shim = os.path.realpath(program) != os.path.realpath(path)
        if not is_shim:
            program = path  # keep the path: it may be a link into a virtual environment
        if not is_shim or _pyenv_root(path):
            self._save(path, {"marks": fingerprint, "program": program, "version": list(version)})
        return program, version

    def _run(self, path: str) -> tuple[str, Version] | None:
        # pyenv and other version managers depend on the folder, so an inspection must not run in the project folder.
        folder = os.path.abspath(os.sep) if self.inspect_only else self.base
        environ = {**self.environ, "PWD": str(folder)} if self.inspect_only else self.environ
        # Isolated and without site, so that no project or package code runs. Python 2 does not support -I.
        for options in (("-I", "-S"), ("-E", "-S")):
            try:
                result = subprocess.run(
                    [path, *options, "-c", _VERSION_CODE],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_TIMEOUT,
                    env=environ,
                    cwd=folder,
                )
            except (OSError, subprocess.TimeoutExpired):
                return None
            fields = os.fsdecode(result.stdout).split(" ", 3)
            if result.returncode == 0 and len(fields) == 4 and all(field.isdigit() for field in fields[:3]):
                return fields[3] or path, (int(fields[0]), int(fields[1]), int(fields[2]))
        return None

    def _fingerprint(self, path: str) -> list[Any]:
        """Return everything that the answer depends on.

        This is the program and, for a pyenv shim, everything that selects its Python.
        """
        fingerprint: list[Any] = [os.path.realpath(path), _signature(path)]
        root = _pyenv_root(path)
        if root:
            base = Path(os.path.abspath(self.base or os.getcwd()))
            files = [str(folder / ".python-version") for folder in (base, *base.parents)]
            fingerprint += [self.environ.get("PYENV_VERSION"), self.environ["PATH"], str(base)]
            fingerprint += [_signature(file) for file in (os.path.join(root, "version"), *files)]
        return fingerprint

    def _load(self) -> dict[str, Any]:
        if self.cache is None:
            return {}
        try:
            data = parse_json(self.cache.read_bytes())
        except (OSError, ValueError):
            return {}  # the cache is optional
        if not isinstance(data, dict) or data.get("cache") != _CACHE_VERSION:
            return {}
        entries = data.get("entries")
        return entries if isinstance(entries, dict) else {}

    def _save(self, path: str, entry: dict[str, Any]) -> None:
        if self.cache is None:
            return
        others = {name: other for name, other in self._load().items() if name != path}
        entries = {**dict(list(others.items())[-_CACHE_ENTRIES:]), path: entry}
        text = json.dumps({"cache": _CACHE_VERSION, "entries": entries})
        temporary = f"{self.cache}.{os.urandom(4).hex()}.tmp"
        try:
            self.cache.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(text)
            os.replace(temporary, self.cache)
        except OSError:
            pass  # the next submit queries again


def _signature(path: str) -> list[int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_mtime_ns, status.st_size]


def _read_cached(entry: Any, fingerprint: list[Any]) -> tuple[str, Version] | None:
    """Return the cached answer if its fingerprint is unchanged. The cache file is not trusted."""
    if not isinstance(entry, dict) or entry.get("marks") != fingerprint:
        return None
    match entry:
        case {"program": str(program), "version": [int(major), int(minor), int(micro)]}:
            return (program, (major, minor, micro)) if _is_program(program) else None
    return None


def _pyenv_root(path: str) -> str | None:
    """Return pyenv's root folder if the program is one of its shims, else None."""
    folder = os.path.dirname(path)
    root = os.path.dirname(folder)
    is_shim = os.path.basename(folder) == "shims" and os.path.isdir(os.path.join(root, "versions"))
    return root if is_shim else None
