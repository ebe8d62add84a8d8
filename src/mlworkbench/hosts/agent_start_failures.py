"""Explain why the agent did not start on a machine that accepted the login."""

from __future__ import annotations

import re

from ..attachments import Attachment
from ..errors import HostError, Unreachable
from .bootstrap import NO_PYTHON
from .channel import AgentNotStarted
from .openssh import explain_ssh_error
from .replies import printable

_CANNOT_WRITE = re.compile(r"^(?:OSError|PermissionError|FileNotFoundError): \[Errno \d+\] (.+)$", re.MULTILINE)
_GUARD = "case $- in *i*) ;; *) return;; esac"
_STARTUP = (
    f"make sure that ~/.bashrc does not exit or start another shell: add '{_GUARD}' as its first line, then test with"
    " 'ssh HOST true'"
)


def explain_start_failure(attachment: Attachment, error: AgentNotStarted) -> HostError:
    """Return the error for a machine on which the agent did not start. ``error`` contains its output."""
    host, output = attachment.identity, error.output
    if output == NO_PYTHON:
        return HostError(
            f"no Python 3.8 or newer found on {host}",
            "install one, for example: apt install python3, or put one into ~/.mlw/tools/python",
            more="python-too-old",
        )
    if error.exit_status == 255:
        return explain_ssh_error(attachment, output)
    write_errors = _CANNOT_WRITE.findall(output)
    if write_errors:
        return _home_folder_error(host, printable(write_errors[-1].replace("\r", "").partition(": ")[0]))
    if error.exit_status is None:
        return no_response_error(host)
    if output:
        message = f"connected to {host}, but it runs no commands; it printed: {printable(output)}"
        hint = f"the account needs a login shell and a key without a forced command; {_STARTUP}"
        return HostError(message, hint, more="unfit-target")
    return HostError(
        f"connected to {host}, but it runs no commands: its shell ended with exit code {error.exit_status}; the usual"
        " cause is a startup file such as ~/.bashrc",
        _STARTUP,
        more="unfit-target",
    )


def _home_folder_error(host: str, reason: str) -> HostError:
    is_full = "space" in reason or "quota" in reason
    hint = "free disk space on the machine" if is_full else "your user needs write access to it"
    problem = f"the home folder of {host} cannot be used: {reason}"
    return HostError(problem, hint, more="disk-full" if is_full else "unfit-target")


def no_response_error(host: str) -> Unreachable:
    """Return the error for a machine that accepts the login but does not respond.

    The machine is overloaded, or it runs another program instead of the agent.
    """
    return Unreachable(
        f"connected to {host}, but it does not respond; if it is not overloaded, a startup file such as ~/.bashrc"
        " waits or starts another shell",
        _STARTUP,
        more="unfit-target",
    )
