"""Run a program that builds: its output goes to a log, and it is ended when it is to be, or exceeds its bounds."""

from __future__ import annotations

import os
import signal
import subprocess

from ..shared.tree import remove
from ..shared.unpacking_limits import Bounds, temporary_folders, uv_cache
from .tools import NoEnvironment

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional

LOOK = 0.2
_TAIL = 6000
_LINES = 8


def run_program(
    words: List[str],
    environ: Dict[str, str],
    folder: str,
    log: str,
    holder: int,
    bounds: Bounds,
    look: Callable[[int], None],
) -> Optional[str]:
    """The last words of a program that failed; None: it did not. Raises NoEnvironment if it exceeds its bounds.

    ``holder``: a descriptor that it keeps. ``look`` gets its process ID a few times a second; what it raises ends it.
    """
    with open(log, "ab") as file:
        start = file.tell()
        program = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environ,
            cwd=folder,
            pass_fds=(holder,),
            start_new_session=True,
            restore_signals=False,  # SIGXFSZ stays ignored: a file that becomes too large is an error, not its end
        )
        try:
            bounds.apply(program.pid)
            while _wait(program) is None:
                look(program.pid)
                excess = bounds.exceeded(program.pid)
                if excess:
                    _end(program, uv_cache(environ, folder))
                    raise NoEnvironment("%s while unpacking packages" % excess[0], excess[1])
        except BaseException:
            _kill(program)
            raise
    return _last_words(log, start) if program.returncode else None


def _end(program: "subprocess.Popen[bytes]", cache: str) -> None:
    """With its temporary files, which would fill the disk."""
    os.killpg(program.pid, signal.SIGSTOP)
    folders = temporary_folders(program.pid, cache)
    _kill(program)
    for one in folders:
        remove(one)


def _wait(program: "subprocess.Popen[bytes]") -> Optional[int]:
    try:
        return program.wait(LOOK)
    except subprocess.TimeoutExpired:
        return None


def _kill(program: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    program.wait()


def _last_words(log: str, start: int) -> str:
    with open(log, "rb") as file:
        file.seek(max(start, os.fstat(file.fileno()).st_size - _TAIL))
        text = file.read().decode("utf-8", "replace")
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return text
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    errors = [index for index, line in enumerate(lines) if line.lower().startswith("error")]
    return "\n".join(lines[errors[-1] :][:_LINES] if errors else lines[-_LINES:]) or "the build failed without output"
