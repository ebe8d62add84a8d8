"""Run Slurm's programs, with a short environment, a time limit, and errors that tell a refusal from silence."""

from __future__ import annotations

import os
import subprocess

from ..shared.failure import Failed
from ..shared.program_lookup import safe_path, which

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict, Sequence

TIMEOUT = 20.0  # seconds; Slurm's own time limit for messages is 10 by default
_FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/local/slurm/bin", "/opt/slurm/current/bin")
# Variables such as SBATCH_PARTITION or SLURM_CLUSTERS would change the meaning of commands.
_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "SLURM_CONF", "MLW_FAILPOINT")
# Errors after which it is not known whether the controller executed the request.
_SILENT = (
    "unable to contact slurm controller",
    "socket timed out",
    "zero bytes were transmitted",
    "connection refused",
    "connection timed out",
    "connect failure",
    "communication connection failure",
    "communication shutdown failure",
    "message receive failure",
    "message send failure",
    "temporarily unable to accept job",
    "backup controller in standby mode",
    "unable to contact the controller",
)
_MAX_TEXT = 2000


class SlurmError(Failed):
    """Error for a request that Slurm rejected."""

    code = "slurm-refused"


class SlurmMissing(SlurmError):
    """Error for a Slurm program that is not installed."""

    code = "slurm-missing"


class SlurmSilent(SlurmError):
    """Error of a Slurm program that got no answer. The controller may have executed the request."""

    code = "slurm-silent"


def find_program(name: str) -> str:
    """Return the path of a Slurm program. Raise SlurmMissing if it is not installed."""
    path = which(name, os.pathsep.join([safe_path(), *_FOLDERS]))
    if path is None:
        raise SlurmMissing(
            "%s is not installed, or not on the PATH of a non-interactive shell" % name,
            "run 'which %s' over SSH on the login node" % name,
        )
    return path


def call(
    name: str, arguments: Sequence[str], text: str = "", timeout: float = TIMEOUT, keep: Sequence[int] = ()
) -> str:
    """Run a Slurm program and return its output. ``keep``: descriptors that stay open while it runs."""
    program = subprocess.Popen(
        [find_program(name), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=program_environment(),
        cwd="/",
        pass_fds=keep,
    )
    try:
        output, error = program.communicate(text.encode("utf-8", "surrogateescape"), timeout=timeout)
    except subprocess.TimeoutExpired:
        program.kill()
        program.communicate()
        raise SlurmSilent("%s got no answer within %g s" % (name, timeout)) from None
    if program.returncode == 0:
        return output.decode("utf-8", "replace")
    message = _message(name, error.decode("utf-8", "replace"), program.returncode)
    raise (SlurmSilent if is_silent(message) else SlurmError)(message)


def is_silent(message: str) -> bool:
    """Return whether an error message leaves open whether the controller executed the request."""
    lowered = message.lower()
    return any(text in lowered for text in _SILENT)


def _message(name: str, error: str, code: int) -> str:
    """Return the messages of a program in one line, without the prefixes."""
    lines = []
    for line in error[:_MAX_TEXT].splitlines():
        text = line.strip()
        for prefix in (name + ": ", "error: ", "fatal: "):
            if text.startswith(prefix):
                text = text[len(prefix) :]
        if text and text not in lines:
            lines.append(text)
    return "%s: %s" % (name, "; ".join(lines) or "exit code %d" % code)


def program_environment() -> Dict[str, str]:
    """Return the environment of Slurm's programs, which sbatch also passes to jobs."""
    return {name: os.environ[name] for name in _PASSED if name in os.environ}
