"""Programs that are asked side by side, each for a moment only."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

PATIENCE = 3.0
_LONGEST = 100_000


@dataclass(frozen=True)
class Answer:
    """What a program said; ``code`` is None if it did not end in time, or could not be started."""

    code: int | None
    out: str = ""
    err: str = ""


class Question:
    """A program that was started; it works while others are.

    Not in the current folder, which may be a stranger's project: what lies there must not be taken for a part of it.
    """

    def __init__(self, *words: str, environ: dict[str, str] | None = None) -> None:
        self._until = time.monotonic() + PATIENCE
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                cwd=os.sep,
                start_new_session=True,  # so that all that it starts can be ended with it
            )
        except OSError:
            self._process = None

    def answer(self) -> Answer:
        if self._process is None:
            return Answer(None)
        try:
            out, err = self._process.communicate(timeout=max(0.1, self._until - time.monotonic()))
        except subprocess.TimeoutExpired:
            _end(self._process)
            return Answer(None)
        return Answer(self._process.returncode, _text(out), _text(err))


def ask(words: Sequence[str] | None, environ: dict[str, str] | None = None) -> Question | None:
    """Nothing is asked where there is no such program."""
    return Question(*words, environ=environ) if words else None


def answer(question: Question | None) -> Answer:
    return question.answer() if question else Answer(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    """What it says is not waited for: a child of it that went away may hold the other end of the pipe for ever."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(1)  # one that hangs in the kernel does not end even so


def _text(data: bytes) -> str:
    return data[:_LONGEST].decode(errors="replace").strip()
