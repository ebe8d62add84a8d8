"""Inspect the OpenSSH client on this machine: program, files, and agent. Opens no connections."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from ..attachments import Attachments
from ..errors import MlwError
from ..hosts.openssh import SUPPORTS_MULTIPLEXING, environment
from ..hosts.replies import printable
from ..hosts.ssh_connection import find_runtime_folder
from ..paths import UserPaths
from ..remote.shared.program_lookup import which
from .laptop_facts import Ssh
from .parallel_programs import ProgramRun, start_program, wait_for_result

_OTHERS_WRITE, _OTHERS_READ = 0o022, 0o077
_PLACEHOLDER_HOST = "mlw-doctor.invalid"  # placeholder host: `ssh -G` prints its options and does not connect
_NO_LOOKUP = ("-o", "CanonicalizeHostname=no")  # otherwise ssh would look up the name in DNS


class SshProbes:
    """The running ssh programs, started first so that they run during the other checks."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("PATH")
        self.program = which("ssh", path)
        self.keygen = which("ssh-keygen", path)
        ssh_add = which("ssh-add", path)
        variables = environment()
        self.version = start_program([self.program, "-V"] if self.program else None, variables)
        self.settings = start_program(
            [self.program, "-G", *_NO_LOOKUP, "--", _PLACEHOLDER_HOST] if self.program else None, variables
        )
        self.socket = environ.get("SSH_AUTH_SOCK")
        self.keys = start_program([ssh_add, "-l"] if ssh_add and self.socket else None, variables)


def collect_ssh_facts(runs: SshProbes, home: Path, store: Path) -> Ssh:
    """Return facts about ssh. ``home`` is the user's home folder and ``store`` is mlw's data folder."""
    writable_by_others, readable_by_others, unreadable = _files(home / ".ssh")
    machines = _attached(store)
    return Ssh(
        program=runs.program,
        keygen=runs.keygen,
        version=_version(runs.version),
        multiplexes=SUPPORTS_MULTIPLEXING,
        sockets=_sockets(),
        config=_config_problem(runs.settings),
        agent=_agent(runs),
        writable_by_others=writable_by_others,
        readable_by_others=readable_by_others,
        unreadable=unreadable,
        attached=len(machines),
        passwords=sum(machines),
    )


def _version(run: ProgramRun | None) -> str | None:
    result = wait_for_result(run)
    lines = (result.err or result.out).splitlines()
    return printable(lines[0].partition(",")[0], 60) if lines else None


def _config_problem(run: ProgramRun | None) -> str | None:
    if run is None:
        return None
    result = wait_for_result(run)
    if result.code in (0, None):
        return None
    return printable((result.err.splitlines() or ["no error message"])[-1])


def _agent(runs: SshProbes) -> str:
    if not runs.socket:
        return "none"
    result = wait_for_result(runs.keys)
    if result.code == 0:
        return str(len(result.out.splitlines()))
    return "empty" if result.code == 1 else "dead" if result.code == 2 else ""


def _sockets() -> str | None:
    try:
        find_runtime_folder()
    except MlwError as error:
        return error.message
    return None


def _files(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return files that others can write, private keys that others can read, and unreadable files."""
    writable_by_others, readable_by_others, unreadable = [], [], []
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
            writable_by_others.append(str(path))
        if path.name.startswith("id_") and path.suffix != ".pub" and mode & _OTHERS_READ:
            readable_by_others.append(str(path))
        if not os.access(path, os.R_OK):
            unreadable.append(str(path))
    return tuple(writable_by_others), tuple(readable_by_others), tuple(unreadable)


def _attached(store: Path) -> list[bool]:
    """Return for each attached machine whether its password is in the keyring."""
    try:
        return [attachment.password for attachment in Attachments(UserPaths(store)).list()]
    except (MlwError, OSError):
        return []
