"""Facts about this machine as values. None means unknown."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..hosts.host_facts import Facts


@dataclass(frozen=True)
class Program:
    """mlw itself and its Python interpreter."""

    version: str
    python: tuple[int, ...]
    executable: str
    source: str | None = None  # source folder of an editable installation
    shadow: str | None = None  # another mlw that precedes this one in PATH
    missing: tuple[str, ...] = ()  # missing packages
    sqlite: str | None = None


@dataclass(frozen=True)
class Home:
    """The data folder. ``problem`` is the system's error from creating a file in it."""

    folder: str
    is_configured: bool = False  # set by MLW_HOME
    exists: bool = True
    is_own: bool = True
    mode: int = 0o700
    problem: str | None = None


@dataclass(frozen=True)
class HistoryState:
    """The run history. ``damage`` is SQLite's finding; ``problem`` is why it could not be read."""

    path: str
    exists: bool = True
    size: int = 0
    runs: int | None = None
    unfinished: int | None = None
    interrupted: int = 0  # interrupted submissions
    version: int | None = None
    supported_version: int = 0  # version that this mlw writes
    damage: str | None = None
    busy: bool = False
    is_fully_checked: bool = True  # all pages were checked
    problem: str | None = None
    set_aside: tuple[str, ...] = ()  # damaged files that were set aside
    written: float | None = None


@dataclass(frozen=True)
class Ssh:
    """The OpenSSH client and its files."""

    program: str | None = None
    keygen: str | None = None
    version: str | None = None
    multiplexes: bool = True
    sockets: str | None = None  # why connections cannot be kept open
    config: str | None = None  # ssh's error about its configuration
    agent: str = ""  # "", "none", "empty", or "dead"; else the number of keys
    writable_by_others: tuple[str, ...] = ()  # files and folders in ~/.ssh that other users can write to
    readable_by_others: tuple[str, ...] = ()  # private keys that other users can read
    unreadable: tuple[str, ...] = ()
    attached: int = 0  # number of attached machines
    passwords: int = 0  # number of attached machines with a password in the keyring


@dataclass(frozen=True)
class Tools:
    """Tools that build environments."""

    uv: str | None = None
    uv_version: str | None = None
    rattler: bool = True
    script: str | None = None  # Python that runs scripts on target `local`
    script_problem: str | None = None


@dataclass(frozen=True)
class Terminal:
    """The terminal and its output encoding."""

    is_terminal: bool = False
    width: int | None = None
    has_colors: bool = False
    encoding: str = "utf-8"
    locale_problem: str | None = None


@dataclass(frozen=True)
class Shell:
    """The login shell, and whether it completes mlw commands."""

    name: str | None = None
    completes: bool = False
    setup_command: str | None = None


@dataclass(frozen=True)
class Parts:
    """Optional parts of mlw."""

    ui_missing: tuple[str, ...] = ()
    install: str = ""


@dataclass(frozen=True)
class Laptop:
    """All facts about this machine."""

    program: Program
    machine: Facts
    home: Home
    history: HistoryState | None
    ssh: Ssh
    keyring: str | None
    tools: Tools
    terminal: Terminal
    login_shell: Shell
    parts: Parts
    now: float
    built: float  # installation time; a clock that shows an earlier time is wrong
    variables: dict[str, str] = field(default_factory=dict)
    missing_files: tuple[str, ...] = ()  # names of variables that refer to missing files
