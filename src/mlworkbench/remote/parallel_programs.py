"""Programs that are asked side by side, each for a few seconds at most."""

from __future__ import annotations

import subprocess
import time

from .shared.programs import which

TYPE_CHECKING = False  # as in typing, whose import would take as long as the rest
if TYPE_CHECKING:
    from typing import Mapping, Optional, Tuple


class Question:
    """A program that was started and will be listened to later."""

    def __init__(self, path: str, process: subprocess.Popen[bytes]) -> None:
        self.path = path
        self.process = process


def ask(name: str, *words: str, env: "Optional[Mapping[str, str]]" = None) -> Optional[Question]:
    path = which(name)
    if path is None:
        return None
    try:
        process = subprocess.Popen(
            [path, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", env=env
        )
    except OSError:
        return None
    return Question(path, process)


def answer(question: Optional[Question], until: float) -> Tuple[Optional[str], Optional[int], str, str]:
    """Path, exit code (None: too slow), and the output; nothing for a program that does not exist."""
    if question is None:
        return None, None, "", ""
    try:
        out, err = question.process.communicate(timeout=max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        question.process.kill()
        question.process.wait()
        for pipe in (question.process.stdout, question.process.stderr):
            if pipe:
                pipe.close()  # not read to the end: a child process may hold the other end
        return question.path, None, "", ""
    return question.path, question.process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
