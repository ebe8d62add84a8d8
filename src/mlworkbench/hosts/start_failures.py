"""Why our program did not start on a machine that accepted the login."""

from __future__ import annotations

import re

from ..attachments import Attachment
from ..errors import HostError, Unreachable
from .channel import NotGreeted
from .loader import NO_PYTHON
from .openssh import explain
from .replies import printable

_CANNOT_WRITE = re.compile(r"^(?:OSError|PermissionError|FileNotFoundError): \[Errno \d+\] (.+)$", re.MULTILINE)
_GUARD = "case $- in *i*) ;; *) return;; esac"
_STARTUP = (
    f"make sure that ~/.bashrc does not exit or start another shell: add '{_GUARD}' as its first line, then test with"
    " 'ssh HOST true'"
)


def unfit(attachment: Attachment, error: NotGreeted) -> HostError:
    """From what came instead of our program's first word."""
    where, said = attachment.identity, error.said
    if said == NO_PYTHON:
        return HostError(
            f"no Python 3.8 or newer found on {where}",
            "install one, for example: apt install python3, or put one into ~/.mlw/tools/python",
            more="python-too-old",
        )
    if error.exit_status == 255:
        return explain(attachment, said)
    found = _CANNOT_WRITE.findall(said)
    if found:
        return _no_home(where, printable(found[-1].replace("\r", "").partition(": ")[0]))
    if error.exit_status is None:
        return silent(where)
    if said:
        what = f"connected to {where}, but it runs no commands; it printed: {printable(said)}"
        hint = f"the account needs a login shell and a key without a forced command; {_STARTUP}"
        return HostError(what, hint, more="unfit-target")
    return HostError(
        f"connected to {where}, but it runs no commands: its shell ended with exit code {error.exit_status}; the usual"
        " cause is a startup file such as ~/.bashrc",
        _STARTUP,
        more="unfit-target",
    )


def _no_home(where: str, what: str) -> HostError:
    full = "space" in what or "quota" in what
    hint = "free disk space on the machine" if full else "your user needs write access to it"
    problem = f"the home folder of {where} cannot be used: {what}"
    return HostError(problem, hint, more="disk-full" if full else "unfit-target")


def silent(where: str) -> Unreachable:
    """The login was accepted, and then nothing came: the machine is overloaded, or another program took our place."""
    return Unreachable(
        f"connected to {where}, but it does not respond; if it is not overloaded, a startup file such as ~/.bashrc"
        " waits or starts another shell",
        _STARTUP,
        more="unfit-target",
    )
