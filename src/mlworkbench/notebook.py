"""IPython magic ``%mlw``: run any mlw command from a notebook, with the kernel's Python on target ``local``.

IPython is not a dependency: it calls ``load_ipython_extension`` for ``%load_ext mlworkbench``.
"""

from __future__ import annotations

import codecs
import locale
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from .environments.notebook_python import KERNEL_PYTHON
from .import_isolation import own_command

_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)
_NO_TERMINAL = {"TERM": "dumb", "COLUMNS": "160"}  # notebooks scroll wide lines


def load_ipython_extension(shell: Any) -> None:
    """Register the magic. Called by IPython for ``%load_ext mlworkbench``."""
    shell.register_magic_function(mlw, "line")


def mlw(line: str) -> None:
    """Run an mlw command: ``%mlw submit -c local train.py --lr 0.1``.

    Prints the output as it arrives. On target ``local``, scripts run with the Python of the kernel. Interrupting the
    kernel has the effect of Ctrl-C. A command that fails stops the cell.
    """
    from IPython.core.error import UsageError  # noqa: PLC0415 - only IPython calls this

    try:
        arguments = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%mlw: {error}") from None
    command = " ".join(["mlw", *arguments[:1]])
    code = _run(arguments)
    if code in _INTERRUPTED:
        raise UsageError(f"{command} was interrupted")
    if code:
        raise UsageError(f"{command} failed with exit status {code}")


def _run(arguments: Sequence[str]) -> int:
    """Run mlw, write its output to the cell, and return the exit status."""
    process = subprocess.Popen(
        own_command(arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **_NO_TERMINAL, KERNEL_PYTHON: sys.executable},
        start_new_session=True,  # an interrupt of the kernel reaches mlw once, through this process
    )
    with process:
        while True:
            try:
                _copy_output(process)
                return process.wait()
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)


def _copy_output(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is None:
        return
    decoder = codecs.getincrementaldecoder(locale.getpreferredencoding(False))("replace")
    while chunk := os.read(process.stdout.fileno(), 65536):
        sys.stdout.write(decoder.decode(chunk))
        sys.stdout.flush()
