"""Run a build program, log its output, and kill it on cancellation or when it exceeds its limits."""

from __future__ import annotations

import os
import signal
import subprocess

from ..shared.folder_tree import remove
from ..shared.unpacking_limits import UnpackingLimits, temporary_folders, uv_cache
from .build_tools import NoEnvironment

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional

POLL_INTERVAL = 0.2
_TAIL_BYTES = 6000
_MAX_LINES = 8


def run_program(
    command: List[str],
    environ: Dict[str, str],
    folder: str,
    log: str,
    holder: int,
    bounds: UnpackingLimits,
    on_poll: Callable[[int], None],
) -> Optional[str]:
    """Run a program. Return its last output lines if it fails, otherwise None.

    Raises NoEnvironment if the program exceeds its limits. The program inherits the descriptor
    ``holder``. ``on_poll`` receives its PID a few times per second; an exception from ``on_poll`` kills
    the program.
    """
    with open(log, "ab") as file:
        start = file.tell()
        program = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environ,
            cwd=folder,
            pass_fds=(holder,),
            start_new_session=True,
            restore_signals=False,  # SIGXFSZ stays ignored, so that too large a file is an error, not a crash
        )
        try:
            bounds.apply(program.pid)
            while _wait(program) is None:
                on_poll(program.pid)
                excess = bounds.exceeded(program.pid)
                if excess:
                    _kill_and_clean(program, uv_cache(environ, folder))
                    raise NoEnvironment("%s while unpacking packages" % excess[0], excess[1])
        except BaseException:
            _kill(program)
            raise
    return _read_error(log, start) if program.returncode else None


def _kill_and_clean(program: "subprocess.Popen[bytes]", cache: str) -> None:
    """Kill the program and remove its temporary files, which would otherwise fill the disk."""
    os.killpg(program.pid, signal.SIGSTOP)
    folders = temporary_folders(program.pid, cache)
    _kill(program)
    for folder in folders:
        remove(folder)


def _wait(program: "subprocess.Popen[bytes]") -> Optional[int]:
    try:
        return program.wait(POLL_INTERVAL)
    except subprocess.TimeoutExpired:
        return None


def _kill(program: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    program.wait()


def _read_error(log: str, start: int) -> str:
    with open(log, "rb") as file:
        file.seek(max(start, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        text = file.read().decode("utf-8", "replace")
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return text
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    errors = [index for index, line in enumerate(lines) if line.lower().startswith("error")]
    return (
        "\n".join(lines[errors[-1] :][:_MAX_LINES] if errors else lines[-_MAX_LINES:])
        or "the build failed without output"
    )
