"""Collect facts about this machine as plain values. Changes nothing and uses no network."""

from __future__ import annotations

import locale
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from .. import version
from ..environments.existing import locate_python
from ..environments.pip_solve import find_uv
from ..errors import MlwError
from ..hosts.host_facts import Facts
from ..paths import UserPaths, data_folder
from ..remote import system_facts as machine
from .history_check import check_history
from .installation import CORE, UI, install_ui, missing, source
from .laptop_facts import HistoryState, Home, Laptop, Parts, Program, Shell, Terminal, Tools
from .parallel_programs import ProgramRun, start_program, wait_for_result
from .ssh_client import SshProbes, collect_ssh_facts

# Prints the backend that `keyring` chooses, and whether it can store anything. Importing keyring is slow, so this
# runs in a separate isolated process, which gets this process's module path but not the current folder.
_KEYRING = (
    "import sys; sys.path[:] = sys.argv[1:]; import keyring; backend = keyring.get_keyring();"
    " print(type(backend).__module__, float(backend.priority))"
)
_REPORTED_VARIABLES = (
    "CUDA_VISIBLE_DEVICES DOCKER_HOST LD_LIBRARY_PATH LD_PRELOAD MLW_DEBUG MLW_HOME MLW_RUN_ID MLW_TRACKING PYTHONHOME"
    " PYTHONPATH PYTHONWARNINGS PYTHONOPTIMIZE PYTHONNOUSERSITE VIRTUAL_ENV CONDA_PREFIX TMPDIR"
    " HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy"
    " SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE PIP_CERT PIP_CONFIG_FILE PIP_INDEX_URL"
    " PIP_EXTRA_INDEX_URL PIP_NO_INDEX PIP_FIND_LINKS UV_INDEX_URL UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_FIND_LINKS"
    " UV_OFFLINE UV_CONFIG_FILE"
).split()
_FILE_VARIABLES = (
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE PIP_CERT PIP_CONFIG_FILE UV_CONFIG_FILE"
).split()
_ENGINE_TIMEOUT = 2.0  # time limit for docker and podman in seconds


def collect_facts(environ: Mapping[str, str], argv0: str) -> Laptop:
    """Collect all facts. Programs are started first and read last, so that they run in parallel."""
    ssh_runs = SshProbes(environ)
    keyring_run = start_program([sys.executable, "-I", "-c", _KEYRING, *filter(os.path.isabs, sys.path)])
    uv = _uv(environ)
    uv_run = start_program([uv, "--version"] if uv else None)
    folder, problem = _find_data_folder()
    home = _home(folder, environ, problem)
    now = time.time()
    return Laptop(
        program=_program(environ, argv0),
        history=None if problem else _history(folder, home, now),
        terminal=_terminal(environ),
        login_shell=_shell(environ),
        parts=Parts(*_parts()),
        variables={name: environ[name] for name in _REPORTED_VARIABLES if environ.get(name)},
        missing_files=tuple(
            name for name in _FILE_VARIABLES if environ.get(name) and not _any_path_exists(environ[name])
        ),
        machine=Facts.from_json(machine.gather(str(folder), _ENGINE_TIMEOUT)),
        home=home,
        ssh=collect_ssh_facts(ssh_runs, Path(environ.get("HOME") or os.path.expanduser("~")), folder),
        tools=_tools(environ, uv, uv_run),
        keyring=_keyring(keyring_run),
        now=now,
        built=_built(),
    )


# -- mlw ---------------------------------------------------------------------------------------------


def _program(environ: Mapping[str, str], argv0: str) -> Program:
    folder, editable = source()
    return Program(
        version.__version__,
        tuple(sys.version_info[:3]),
        sys.executable,
        source=str(folder) if folder and editable else None,
        shadow=_shadow(environ, argv0),
        missing=missing(CORE),
        sqlite=_sqlite(),
    )


def _shadow(environ: Mapping[str, str], argv0: str) -> str | None:
    """Return the path of another mlw that a shell would start instead of this one, or None."""
    first = shutil.which("mlw", path=environ.get("PATH"))
    if first is None or not os.path.isabs(argv0) or os.path.basename(argv0) != "mlw":
        return None
    return None if os.path.realpath(first) == os.path.realpath(argv0) else first


def _sqlite() -> str | None:
    import apsw  # noqa: PLC0415 - reported if it is missing

    return apsw.sqlite_lib_version()


def _built() -> float:
    try:
        return os.stat(version.__file__).st_mtime
    except OSError:
        return 0.0


def _parts() -> tuple[tuple[str, ...], str]:
    return missing(UI), install_ui()


# -- the data folder -----------------------------------------------------------------------------------


def _find_data_folder() -> tuple[Path, str | None]:
    try:
        folder = data_folder()
    except MlwError as error:
        return Path(os.sep), error.message
    return folder, "MLW_HOME is the root of the file system" if folder == Path(folder.anchor) else None


def _home(folder: Path, environ: Mapping[str, str], problem: str | None) -> Home:
    is_configured = bool(environ.get("MLW_HOME"))
    if problem:
        return Home(environ.get("MLW_HOME") or str(folder), is_configured, problem=problem)
    try:
        facts = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Home(str(folder), is_configured, exists=False, problem=_creation_problem(folder))
    except OSError as error:
        return Home(str(folder), is_configured, problem=error.strerror)
    if not stat.S_ISDIR(facts.st_mode):
        return Home(str(folder), is_configured, problem="it is a file, not a folder")
    is_own = os.name != "posix" or facts.st_uid == os.getuid()
    return Home(str(folder), is_configured, True, is_own, stat.S_IMODE(facts.st_mode), _write_problem(folder))


def _write_problem(folder: Path) -> str | None:
    """Return why a file cannot be written in the folder, or None.

    Only an actual write detects full disks, quotas, and read-only mounts.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _creation_problem(folder: Path) -> str | None:
    """Return why a missing folder cannot be created."""
    existing = next((parent for parent in folder.parents if parent.exists()), folder)
    if not existing.is_dir():
        return f"{existing} is a file, not a folder"
    return None if os.access(existing, os.W_OK | os.X_OK) else f"it does not exist, and {existing} is not writable"


def _history(folder: Path, home: Home, now: float) -> HistoryState | None:
    return check_history(UserPaths(folder).database, now) if home.exists and folder.is_dir() else None


def _any_path_exists(value: str) -> bool:
    """Return whether the path, or any path in a list of paths, exists."""
    return any(os.path.exists(path) for path in (value, *value.split(os.pathsep)))


# -- tools ---------------------------------------------------------------------------------------------


def _uv(environ: Mapping[str, str]) -> str | None:
    try:
        return find_uv(environ)
    except MlwError:
        return None


def _tools(environ: Mapping[str, str], uv: str | None, run: ProgramRun | None) -> Tools:
    result = wait_for_result(run)
    try:
        script, problem = locate_python(None, environ, None)[0], None
    except MlwError as error:
        script, problem = None, error.message
    version_text = result.out.partition(" ")[2].partition(" ")[0] if result.code == 0 else None
    return Tools(uv, version_text or None, not missing(("rattler",)), script, problem)


def _keyring(run: ProgramRun | None) -> str | None:
    """Return the module of keyring's backend, or None if there is none that stores passwords."""
    name, _, priority = wait_for_result(run).out.partition(" ")
    try:
        usable = float(priority) > 0
    except ValueError:
        return None
    return name if usable and not name.endswith((".fail", ".null")) else None


# -- terminal and shell ------------------------------------------------------------------------------------------


def _terminal(environ: Mapping[str, str]) -> Terminal:
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else None
    has_colors = is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    encoding = (getattr(sys.stdout, "encoding", None) or locale.getpreferredencoding(False)).lower()
    return Terminal(is_terminal, width, has_colors, encoding, _locale())


def _locale() -> str | None:
    try:
        locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error as error:
        return str(error)
    return None


def _shell(environ: Mapping[str, str]) -> Shell:
    name = os.path.basename(environ.get("SHELL") or "")
    home = environ.get("HOME") or os.path.expanduser("~")
    files = {
        "bash": (".bashrc", ".bash_profile", ".profile"),
        "zsh": (".zshrc",),
        "fish": (".config/fish/completions/mlw.fish", ".config/fish/config.fish"),
    }
    if name not in files:
        return Shell(name or None)
    base = environ.get("ZDOTDIR") or home if name == "zsh" else home
    is_set_up = any(_mentions_mlw(os.path.join(base, file)) for file in files[name])
    return Shell(name, is_set_up, f"mlw completion {name}")


def _mentions_mlw(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(1_000_000)
    except OSError:
        return False
    return "mlw completion" in text or "_mlw_completion" in text or "__mlw_complete" in text
