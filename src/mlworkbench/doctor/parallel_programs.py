"""Run programs in parallel, each with a short time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

TIME_LIMIT = 3.0
_MAX_LENGTH = 100_000


@dataclass(frozen=True)
class ProgramResult:
    """The result of a program. ``code`` is None if it timed out or could not be started."""

    code: int | None
    out: str = ""
    err: str = ""


class ProgramRun:
    """A running program; several can run in parallel.

    The program does not start in the current folder, where it could load files of an untrusted project.
    """

    def __init__(self, *command: str, environ: dict[str, str] | None = None) -> None:
        self._deadline = time.monotonic() + TIME_LIMIT
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                cwd=os.sep,
                start_new_session=True,  # so that its child processes can be killed, too
            )
        except OSError:
            self._process = None

    def result(self) -> ProgramResult:
        if self._process is None:
            return ProgramResult(None)
        try:
            out, err = self._process.communicate(timeout=max(0.1, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _end(self._process)
            return ProgramResult(None)
        return ProgramResult(self._process.returncode, _text(out), _text(err))


def start_program(command: Sequence[str] | None, environ: dict[str, str] | None = None) -> ProgramRun | None:
    """Start the program if ``command`` is given."""
    return ProgramRun(*command, environ=environ) if command else None


def wait_for_result(run: ProgramRun | None) -> ProgramResult:
    return run.result() if run else ProgramResult(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process without reading its output: a detached child may keep the pipe open forever."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)  # may time out: the process may be blocked in the kernel


def _text(data: bytes) -> str:
    return data[:_MAX_LENGTH].decode(errors="replace").strip()
