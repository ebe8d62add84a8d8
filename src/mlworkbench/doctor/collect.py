"""Looks at this machine: what is there, as plain values. Judges nothing, changes nothing, uses no network."""

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
from ..environments.pip import find_uv
from ..errors import MlwError
from ..hosts.facts import Facts
from ..paths import UserPaths, data_folder
from ..remote import facts as machine
from .asking import Question, answer, ask
from .facts import Home, Laptop, Parts, Past, Program, Shell, Terminal, Tools
from .installed import CORE, UI, install_ui, missing, source
from .past import look as look_back
from .secureshell import SshQuestions
from .secureshell import look as look_at_ssh

# A name and whether it can keep anything: what `keyring` chooses here. Slow to import, so in a process of its own:
# isolated, else modules of the current folder would be taken for ours; and told where this one finds its modules.
_KEYRING = (
    "import sys; sys.path[:] = sys.argv[1:]; import keyring; one = keyring.get_keyring();"
    " print(type(one).__module__, float(one.priority))"
)
_TOLD = (
    "CUDA_VISIBLE_DEVICES DOCKER_HOST LD_LIBRARY_PATH LD_PRELOAD MLW_DEBUG MLW_HOME MLW_RUN_ID MLW_TRACKING PYTHONHOME"
    " PYTHONPATH PYTHONWARNINGS PYTHONOPTIMIZE PYTHONNOUSERSITE VIRTUAL_ENV CONDA_PREFIX TMPDIR"
    " HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy"
    " SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE PIP_CERT PIP_CONFIG_FILE PIP_INDEX_URL"
    " PIP_EXTRA_INDEX_URL PIP_NO_INDEX PIP_FIND_LINKS UV_INDEX_URL UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_FIND_LINKS"
    " UV_OFFLINE UV_CONFIG_FILE"
).split()
_FILES = (
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE PIP_CERT PIP_CONFIG_FILE UV_CONFIG_FILE"
).split()
_ENGINES = 2.0  # seconds that docker and podman may take


def gather(environ: Mapping[str, str], argv0: str) -> Laptop:
    """Programs are started first and heard last, so that all of them work at the same time."""
    ssh = SshQuestions(environ)
    keyring = ask([sys.executable, "-I", "-c", _KEYRING, *filter(os.path.isabs, sys.path)])
    uv = _uv(environ)
    asked = ask([uv, "--version"] if uv else None)
    folder, trouble = _place()
    home = _home(folder, environ, trouble)
    now = time.time()
    return Laptop(
        program=_program(environ, argv0),
        past=None if trouble else _past(folder, home, now),
        terminal=_terminal(environ),
        login_shell=_shell(environ),
        parts=Parts(*_parts()),
        variables={name: environ[name] for name in _TOLD if environ.get(name)},
        absent=tuple(name for name in _FILES if environ.get(name) and not _leads(environ[name])),
        machine=Facts.from_json(machine.gather(str(folder), _ENGINES)),
        home=home,
        ssh=look_at_ssh(ssh, Path(environ.get("HOME") or os.path.expanduser("~")), folder),
        tools=_tools(environ, uv, asked),
        keyring=_keyring(keyring),
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
    """Another mlw that a shell would start."""
    first = shutil.which("mlw", path=environ.get("PATH"))
    if first is None or not os.path.isabs(argv0) or os.path.basename(argv0) != "mlw":
        return None
    return None if os.path.realpath(first) == os.path.realpath(argv0) else first


def _sqlite() -> str | None:
    import apsw  # noqa: PLC0415 - told as missing, if it is

    return apsw.sqlite_lib_version()


def _built() -> float:
    try:
        return os.stat(version.__file__).st_mtime
    except OSError:
        return 0.0


def _parts() -> tuple[tuple[str, ...], str]:
    return missing(UI), install_ui()


# -- the data folder -----------------------------------------------------------------------------------


def _place() -> tuple[Path, str | None]:
    try:
        folder = data_folder()
    except MlwError as error:
        return Path(os.sep), error.message
    return folder, "MLW_HOME is the root of the file system" if folder == Path(folder.anchor) else None


def _home(folder: Path, environ: Mapping[str, str], trouble: str | None) -> Home:
    named = bool(environ.get("MLW_HOME"))
    if trouble:
        return Home(environ.get("MLW_HOME") or str(folder), named, problem=trouble)
    try:
        facts = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Home(str(folder), named, there=False, problem=_above(folder))
    except OSError as error:
        return Home(str(folder), named, problem=error.strerror)
    if not stat.S_ISDIR(facts.st_mode):
        return Home(str(folder), named, problem="it is a file, not a folder")
    mine = os.name != "posix" or facts.st_uid == os.getuid()
    return Home(str(folder), named, True, mine, stat.S_IMODE(facts.st_mode), _writing(folder))


def _writing(folder: Path) -> str | None:
    """Why nothing can be written there; only trying tells of full disks, quotas and mounts for reading."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _above(folder: Path) -> str | None:
    """Why a folder that is not there yet could not be made."""
    place = next((one for one in folder.parents if one.exists()), folder)
    if not place.is_dir():
        return f"{place} is a file, not a folder"
    return None if os.access(place, os.W_OK | os.X_OK) else f"it does not exist, and {place} is not writable"


def _past(folder: Path, home: Home, now: float) -> Past | None:
    return look_back(UserPaths(folder).database, now) if home.there and folder.is_dir() else None


def _leads(value: str) -> bool:
    """Whether one of the places is there: of folders there may be several."""
    return any(os.path.exists(one) for one in (value, *value.split(os.pathsep)))


# -- tools ---------------------------------------------------------------------------------------------


def _uv(environ: Mapping[str, str]) -> str | None:
    try:
        return find_uv(environ)
    except MlwError:
        return None


def _tools(environ: Mapping[str, str], uv: str | None, asked: Question | None) -> Tools:
    said = answer(asked)
    try:
        script, why = locate_python(None, environ, None)[0], None
    except MlwError as error:
        script, why = None, error.message
    worked = said.out.partition(" ")[2].partition(" ")[0] if said.code == 0 else None
    return Tools(uv, worked or None, not missing(("rattler",)), script, why)


def _keyring(asked: Question | None) -> str | None:
    """The module of the one that would be used; None if it keeps nothing, or there is none."""
    name, _, priority = answer(asked).out.partition(" ")
    try:
        usable = float(priority) > 0
    except ValueError:
        return None
    return name if usable and not name.endswith((".fail", ".null")) else None


# -- the person ------------------------------------------------------------------------------------------


def _terminal(environ: Mapping[str, str]) -> Terminal:
    person = sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if person else None
    coloured = person and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    encoding = (getattr(sys.stdout, "encoding", None) or locale.getpreferredencoding(False)).lower()
    return Terminal(person, width, coloured, encoding, _locale())


def _locale() -> str | None:
    try:
        locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error as error:
        return str(error)
    return None


def _shell(environ: Mapping[str, str]) -> Shell:
    name = os.path.basename(environ.get("SHELL") or "")
    home = environ.get("HOME") or os.path.expanduser("~")
    places = {
        "bash": (".bashrc", ".bash_profile", ".profile"),
        "zsh": (".zshrc",),
        "fish": (".config/fish/completions/mlw.fish", ".config/fish/config.fish"),
    }
    if name not in places:
        return Shell(name or None)
    base = environ.get("ZDOTDIR") or home if name == "zsh" else home
    found = any(_speaks_of_mlw(os.path.join(base, one)) for one in places[name])
    return Shell(name, found, f"mlw completion {name}")


def _speaks_of_mlw(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(1_000_000)
    except OSError:
        return False
    return "mlw completion" in text or "_mlw_completion" in text or "__mlw_complete" in text
