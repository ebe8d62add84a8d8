"""The OpenSSH client of this machine: the program, its files, its agent. Connects to no machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from ..attachments import Attachments
from ..errors import MlwError
from ..hosts.master import usable_folder
from ..hosts.openssh import MULTIPLEXES, environment
from ..hosts.replies import printable
from ..paths import UserPaths
from ..remote.shared.programs import which
from .asking import Question, answer, ask
from .facts import Ssh

_OTHERS_WRITE, _OTHERS_READ = 0o022, 0o077
_NOWHERE = "mlw-doctor.invalid"  # a name that means no machine: options are read, nobody is called
_NAMES_STAY = ("-o", "CanonicalizeHostname=no")  # else ssh would ask the network what the name is in full


class SshQuestions:
    """The programs that are asked, started before anything else is looked at."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("PATH")
        self.program = which("ssh", path)
        self.keygen = which("ssh-keygen", path)
        adder = which("ssh-add", path)
        quiet = environment()
        self.version = ask([self.program, "-V"] if self.program else None, quiet)
        self.settings = ask([self.program, "-G", *_NAMES_STAY, "--", _NOWHERE] if self.program else None, quiet)
        self.socket = environ.get("SSH_AUTH_SOCK")
        self.keys = ask([adder, "-l"] if adder and self.socket else None, quiet)


def look(asked: SshQuestions, home: Path, store: Path) -> Ssh:
    """``home`` is the user's, ``store`` our data folder."""
    loose, shown, unreadable = _files(home / ".ssh")
    machines = _attached(store)
    return Ssh(
        program=asked.program,
        keygen=asked.keygen,
        version=_version(asked.version),
        multiplexes=MULTIPLEXES,
        sockets=_sockets(),
        config=_complaint(asked.settings),
        agent=_agent(asked),
        loose=loose,
        shown=shown,
        unreadable=unreadable,
        attached=len(machines),
        passwords=sum(machines),
    )


def _version(question: Question | None) -> str | None:
    said = answer(question)
    lines = (said.err or said.out).splitlines()
    return printable(lines[0].partition(",")[0], 60) if lines else None


def _complaint(question: Question | None) -> str | None:
    if question is None:
        return None
    said = answer(question)
    if said.code in (0, None):
        return None
    return printable((said.err.splitlines() or ["no error message"])[-1])


def _agent(asked: SshQuestions) -> str:
    if not asked.socket:
        return "none"
    said = answer(asked.keys)
    if said.code == 0:
        return str(len(said.out.splitlines()))
    return "empty" if said.code == 1 else "dead" if said.code == 2 else ""


def _sockets() -> str | None:
    try:
        usable_folder()
    except MlwError as error:
        return error.message
    return None


def _files(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """(others may write it, a private key that others may read, cannot be read)."""
    loose, shown, unreadable = [], [], []
    if os.name != "posix" or not folder.is_dir():
        return (), (), ()
    for path in (folder, folder / "config", folder / "known_hosts", *sorted(folder.glob("id_*"))):
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:
            continue
        except OSError:
            unreadable.append(str(path))
            continue
        if path.name in (".ssh", "config") and mode & _OTHERS_WRITE:
            loose.append(str(path))
        if path.name.startswith("id_") and path.suffix != ".pub" and mode & _OTHERS_READ:
            shown.append(str(path))
        if not os.access(path, os.R_OK):
            unreadable.append(str(path))
    return tuple(loose), tuple(shown), tuple(unreadable)


def _attached(store: Path) -> list[bool]:
    """For each machine that this user attached: whether its password is in the keyring."""
    try:
        return [one.password for one in Attachments(UserPaths(store)).list()]
    except (MlwError, OSError):
        return []
