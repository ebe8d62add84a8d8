"""The Python that is there already: which one, and that it will do. Installs nothing."""

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
from ..remote.shared.programs import in_project, is_inside, is_shim
from ..remote.shared.untrusted import parse_json
from .site import Settled, Site

OLDEST = (3, 5)  # what the in-run library runs on
Version = tuple[int, int, int]

_TIMEOUT = 20.0
_NAMES = ("python", "python3", "py") if os.name == "nt" else ("python", "python3")
# Understood by every Python since 2.4.
_QUESTION = "import sys; sys.stdout.write('%d %d %d %s' % (tuple(sys.version_info[:3]) + (sys.executable,)))"
UNTRIED: Version = (0, 0, 0)  # the version of a Python that was found and not started
_SHIM = ": a script or shim could start a program of the project"
_CACHE_VERSION = 1
_CACHE_ENTRIES = 64


def existing(site: Site) -> Settled:
    """The environment that the user looks after on this machine: nothing to solve, nothing to install."""
    find = look_at_python if site.dry_run else find_python
    found = find(site.compute.python_location, site.environ, site.root, site.paths.interpreters)
    version = None if found.version == UNTRIED else _dotted(found.version)
    lock = {"kind": "existing", "python": found.path, "version": version}
    return Settled(lock, found)


# -- which one -------------------------------------------------------------------------------------


def find_python(
    python_location: str | None, environ: Mapping[str, str], base: Path | None, cache: Path | None = None
) -> Interpreter:
    """The Python of ``pythonLocation``, else the first usable one on PATH. Runs it once to ask its version.

    ``base`` is the project's folder, ``cache`` a file that remembers answers. A project from a stranger may
    name any program in ``pythonLocation``: only what is documented to run the project's code calls this.
    """
    return _find(python_location, environ, base, _Oracle(environ, base, cache))


def look_at_python(
    python_location: str | None, environ: Mapping[str, str], base: Path | None, cache: Path | None = None
) -> Interpreter:
    """The same Python, for commands that only inspect a project: no program of the project is started.

    One that was never started has the version ``UNTRIED``, and a reason. Nothing is started in the project's folder.
    """
    oracle = _Oracle(environ, base, cache, only_looks=True, is_named=not is_search(python_location))
    return _find(python_location, environ, base, oracle)


def _of_project(path: str, base: Path | None) -> bool:
    """Whether the project decides what runs: the program lies in it, or may start what a file of the project names."""
    return in_project(path) or (base is not None and is_inside(path, str(base))) or _is_indirect(path)


def _is_indirect(path: str) -> bool:
    """Whether another program may be behind it: a shim or a script, also one that cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!" or is_shim(path)
    except OSError:
        return True


def _find(python_location: str | None, environ: Mapping[str, str], base: Path | None, oracle: _Oracle) -> Interpreter:
    if is_search(python_location):
        return _search(environ, oracle)
    path, reason = locate_python(python_location, environ, base)
    answer = oracle.ask(path)
    if answer is None:
        raise ConfigError(
            f"pythonLocation {python_location!r} resolves to {path}, which is not a working Python interpreter",
            "set pythonLocation in the .compute file to a Python interpreter",
        )
    if answer[1] == UNTRIED:
        return _untried(path, reason)
    if answer[1][:2] < OLDEST:
        raise _too_old([(path, answer[1])])
    return Interpreter(answer[0], answer[1], reason)


def _untried(path: str, reason: str) -> Interpreter:
    return Interpreter(path, UNTRIED, f"{reason}; not checked")


def locate_python(python_location: str | None, environ: Mapping[str, str], base: Path | None) -> tuple[str, str]:
    """Path of the Python that would be tried first, and why that one. Runs nothing."""
    if python_location is None or is_search(python_location):
        for name in _NAMES:
            for path in _on_path(name, environ):
                return path, _first(name, environ)
        raise _missing()
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


def is_search(python_location: str | None) -> bool:
    """`pythonLocation: python` stood in every project of the original: it was the default, not a choice."""
    return python_location is None or python_location == "python"


def _search(environ: Mapping[str, str], oracle: _Oracle) -> Interpreter:
    passed: list[tuple[str, Version]] = []
    for name in _NAMES:
        for path in _on_path(name, environ):
            answer = oracle.ask(path)
            if answer is None:
                continue  # a shim without a Python behind it; the next on PATH may be real
            if answer[1] == UNTRIED:
                found = _untried(path, _first(name, environ))
                return replace(found, reason=found.reason + _SHIM) if _is_indirect(path) else found
            if answer[1][:2] >= OLDEST:
                reason = _first(name, environ)
                if passed:
                    reason += "; " + "; ".join(f"{old} is Python {_dotted(which)}" for old, which in passed)
                return Interpreter(answer[0], answer[1], reason)
            passed.append((path, answer[1]))
            break
    raise _too_old(passed) if passed else _missing()


def _first(name: str, environ: Mapping[str, str]) -> str:
    skipped = path_without_own(environ) != environ.get("PATH", os.defpath)
    return f"first {name} on PATH" + (f" outside the environment of mlw ({sys.prefix})" if skipped else "")


def _too_old(found: list[tuple[str, Version]]) -> ConfigError:
    what = " and ".join(f"{path} is Python {_dotted(version)}" for path, version in found)
    return ConfigError(
        f"{what}, but scripts require Python {OLDEST[0]}.{OLDEST[1]} or newer",
        "set pythonLocation in the .compute file to a newer Python",
    )


def _missing() -> ConfigError:
    return ConfigError(
        f"no Python on PATH: found neither {' nor '.join(_NAMES)} outside the environment of mlw",
        "install Python, or set pythonLocation in the .compute file",
    )


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


# -- PATH ------------------------------------------------------------------------------------------


def path_without_own(environ: Mapping[str, str]) -> str:
    """PATH without the virtual environment that mlw is installed in: its packages are not the user's."""
    entries = environ.get("PATH", os.defpath).split(os.pathsep)
    if sys.prefix == sys.base_prefix:
        return os.pathsep.join(entries)
    own = os.path.realpath(sys.prefix)
    return os.pathsep.join(entry for entry in entries if not _lies_in(entry, own))


def own_environment_left(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables as they would be had mlw's own virtual environment never been entered."""
    left = {**environ, "PATH": path_without_own(environ)}
    entered = left.get("VIRTUAL_ENV", "")
    if sys.prefix != sys.base_prefix and _lies_in(entered, os.path.realpath(sys.prefix)):
        for name in ("VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT"):
            left.pop(name, None)
    return left


def _lies_in(entry: str, folder: str) -> bool:
    return os.path.isabs(entry) and (os.path.realpath(entry) + os.sep).startswith(folder + os.sep)


def _on_path(name: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Programs of a name, in the order of PATH.

    Relative entries are passed over: mlw runs inside projects, and looking at one must not run a part of it.
    """
    suffix = ".exe" if os.name == "nt" and not name.lower().endswith(".exe") else ""
    for entry in path_without_own(environ).split(os.pathsep):
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


class _Oracle:
    """Asks interpreters who they are, and remembers the answers on disk for as long as nothing changed."""

    def __init__(
        self,
        environ: Mapping[str, str],
        base: Path | None,
        cache: Path | None,
        *,
        only_looks: bool = False,
        is_named: bool = False,
    ) -> None:
        self.environ = own_environment_left(environ)
        self.base = base
        self.cache = cache
        self.only_looks = only_looks  # nothing is started that the project may have a say in
        self.is_named = is_named  # by the project

    def ask(self, path: str) -> tuple[str, Version] | None:
        """Real program (behind a pyenv shim) and version; None if it does not answer like a Python."""
        marks = self._marks(path)
        known = _recall(self._load().get(path), marks)
        if known:
            return known
        if self.only_looks and (self.is_named or _of_project(path, self.base)):
            return path, UNTRIED
        answer = self._run(path)
        if answer is None:
            return None
        program, version = answer
        is_shim = os.path.realpath(program) != os.path.realpath(path)
        if not is_shim:
            program = path  # as it was found: a link into a virtual environment must stay that link
        if not is_shim or _pyenv_root(path):
            self._remember(path, {"marks": marks, "program": program, "version": list(version)})
        return program, version

    def _run(self, path: str) -> tuple[str, Version] | None:
        # pyenv and other version managers choose by folder, so that looking must not happen in the project's.
        folder = os.path.abspath(os.sep) if self.only_looks else self.base
        environ = {**self.environ, "PWD": str(folder)} if self.only_looks else self.environ
        # Isolated and without site: neither project nor installed packages get to run. Python 2 has no -I.
        for options in (("-I", "-S"), ("-E", "-S")):
            try:
                done = subprocess.run(
                    [path, *options, "-c", _QUESTION],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_TIMEOUT,
                    env=environ,
                    cwd=folder,
                )
            except (OSError, subprocess.TimeoutExpired):
                return None
            words = os.fsdecode(done.stdout).split(" ", 3)
            if done.returncode == 0 and len(words) == 4 and all(word.isdigit() for word in words[:3]):
                return words[3] or path, (int(words[0]), int(words[1]), int(words[2]))
        return None

    def _marks(self, path: str) -> list[Any]:
        """All that the answer depends on: the program and, for a pyenv shim, what chooses behind it."""
        marks: list[Any] = [os.path.realpath(path), _signature(path)]
        root = _pyenv_root(path)
        if root:
            base = Path(os.path.abspath(self.base or os.getcwd()))
            files = [str(folder / ".python-version") for folder in (base, *base.parents)]
            marks += [self.environ.get("PYENV_VERSION"), self.environ["PATH"], str(base)]
            marks += [_signature(file) for file in (os.path.join(root, "version"), *files)]
        return marks

    def _load(self) -> dict[str, Any]:
        if self.cache is None:
            return {}
        try:
            data = parse_json(self.cache.read_bytes())
        except (OSError, ValueError):
            return {}  # it is only a cache
        if not isinstance(data, dict) or data.get("cache") != _CACHE_VERSION:
            return {}
        entries = data.get("entries")
        return entries if isinstance(entries, dict) else {}

    def _remember(self, path: str, entry: dict[str, Any]) -> None:
        if self.cache is None:
            return
        others = {name: known for name, known in self._load().items() if name != path}
        entries = {**dict(list(others.items())[-_CACHE_ENTRIES:]), path: entry}
        text = json.dumps({"cache": _CACHE_VERSION, "entries": entries})
        temporary = f"{self.cache}.{os.urandom(4).hex()}.tmp"
        try:
            self.cache.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(text)
            os.replace(temporary, self.cache)
        except OSError:
            pass  # the next submit asks again


def _signature(path: str) -> list[int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_mtime_ns, status.st_size]


def _recall(known: Any, marks: list[Any]) -> tuple[str, Version] | None:
    """The remembered answer if all it depends on is as it was. The file may hold anything."""
    if not isinstance(known, dict) or known.get("marks") != marks:
        return None
    match known:
        case {"program": str(program), "version": [int(major), int(minor), int(micro)]}:
            return (program, (major, minor, micro)) if _is_program(program) else None
    return None


def _pyenv_root(path: str) -> str | None:
    """Folder of pyenv if the program is one of its shims, which are small scripts, all alike."""
    folder = os.path.dirname(path)
    root = os.path.dirname(folder)
    is_shim = os.path.basename(folder) == "shims" and os.path.isdir(os.path.join(root, "versions"))
    return root if is_shim else None
