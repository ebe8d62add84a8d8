"""Run programs in parallel, each with a timeout of a few seconds."""

from __future__ import annotations

import subprocess
import time

from .shared.program_lookup import which

TYPE_CHECKING = False  # importing typing would take as long as the rest of this module
if TYPE_CHECKING:
    from typing import Mapping, Optional, Tuple


class StartedProgram:
    """A started program whose output is read later."""

    def __init__(self, path: str, process: subprocess.Popen[bytes]) -> None:
        self.path = path
        self.process = process


def start_program(name: str, *arguments: str, env: "Optional[Mapping[str, str]]" = None) -> Optional[StartedProgram]:
    path = which(name)
    if path is None:
        return None
    try:
        process = subprocess.Popen(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=env,
        )
    except OSError:
        return None
    return StartedProgram(path, process)


def collect_output(program: Optional[StartedProgram], until: float) -> Tuple[Optional[str], Optional[int], str, str]:
    """Return the path, exit code (None after a timeout), stdout, and stderr of a program.

    If the program does not exist, the values are empty.
    """
    if program is None:
        return None, None, "", ""
    try:
        out, err = program.process.communicate(timeout=max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        program.process.kill()
        program.process.wait()
        for pipe in (program.process.stdout, program.process.stderr):
            if pipe:
                pipe.close()  # do not read to the end: a child process may keep it open
        return program.path, None, "", ""
    return program.path, program.process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
