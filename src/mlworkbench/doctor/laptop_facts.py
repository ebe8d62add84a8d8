"""What was found on this machine, as values. None is what nobody could tell."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..hosts.facts import Facts


@dataclass(frozen=True)
class Program:
    """mlw itself, and the Python that it runs in."""

    version: str
    python: tuple[int, ...]
    executable: str
    source: str | None = None  # the folder that an editable installation leads to
    shadow: str | None = None  # another mlw, which PATH has first
    missing: tuple[str, ...] = ()  # packages that it needs
    sqlite: str | None = None


@dataclass(frozen=True)
class Home:
    """The data folder. ``problem``: what the system said when a file was made in it."""

    folder: str
    named: bool = False  # by MLW_HOME
    there: bool = True
    mine: bool = True
    mode: int = 0o700
    problem: str | None = None


@dataclass(frozen=True)
class Past:
    """The run history. ``damage`` is what SQLite found; ``problem`` why it could not be asked."""

    path: str
    there: bool = True
    size: int = 0
    runs: int | None = None
    unfinished: int | None = None
    stranded: int = 0  # submits that were begun and never finished
    version: int | None = None
    known: int = 0  # the version that this mlw writes
    damage: str | None = None
    busy: bool = False
    whole: bool = True  # all pages were looked at
    problem: str | None = None
    aside: tuple[str, ...] = ()  # damaged files that were kept
    written: float | None = None


@dataclass(frozen=True)
class Ssh:
    """The OpenSSH client and what it will use. Modes are of files that are there."""

    program: str | None = None
    keygen: str | None = None
    version: str | None = None
    multiplexes: bool = True
    sockets: str | None = None  # why connections cannot be kept
    config: str | None = None  # what ssh says of its own files, if it does not like them
    agent: str = ""  # "", "none", "empty", "dead"; else how many keys it has
    loose: tuple[str, ...] = ()  # files and folders of ~/.ssh that others may write
    shown: tuple[str, ...] = ()  # private keys that others may read
    unreadable: tuple[str, ...] = ()
    attached: int = 0  # machines that need it
    passwords: int = 0  # those whose password is in the keyring


@dataclass(frozen=True)
class Tools:
    """What makes environments."""

    uv: str | None = None
    uv_version: str | None = None
    rattler: bool = True
    script: str | None = None  # the Python that runs scripts on target local
    script_problem: str | None = None


@dataclass(frozen=True)
class Terminal:
    """Where results go."""

    person: bool = False
    width: int | None = None
    colours: bool = False
    encoding: str = "utf-8"
    locale_problem: str | None = None


@dataclass(frozen=True)
class Shell:
    """The login shell, and whether TAB completes words of mlw in it."""

    name: str | None = None
    completes: bool = False
    how: str | None = None


@dataclass(frozen=True)
class Parts:
    """What can be installed beside the core."""

    ui_missing: tuple[str, ...] = ()
    install: str = ""


@dataclass(frozen=True)
class Laptop:
    """All of it."""

    program: Program
    machine: Facts
    home: Home
    past: Past | None
    ssh: Ssh
    keyring: str | None
    tools: Tools
    terminal: Terminal
    login_shell: Shell
    parts: Parts
    now: float
    built: float  # when this mlw was installed: no clock can be before
    variables: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()  # variables that name a file which is not there
