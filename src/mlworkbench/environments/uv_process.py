"""uv as a process on this machine, within bounds: it reads archives of indexes that a project names."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import SolveError
from ..remote.shared.unpacking_limits import MOST, TOO_LARGE, Bounds, is_too_large, temporary_folders, uv_cache

_TIMEOUT = 900
_LOOK = 0.25


def run_bounded(words: Sequence[str], environ: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Its answer. Raises SolveError if it gives none, or unpacks too much."""
    cache = uv_cache(environ, str(folder))
    bounds = Bounds(MOST, cache)
    try:
        process = _start(words, environ, folder, bounds)
    except OSError as error:
        raise SolveError(
            f"cannot start uv: {error.strerror}", "reinstall it: pip install --force-reinstall uv"
        ) from None
    with process:
        try:
            out, err = _listen(process, bounds, cache)
        except BaseException:
            process.kill()
            raise
    if is_too_large(err):
        raise SolveError(f"uv failed to unpack a package:\n{err.strip()[-600:]}", TOO_LARGE)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _start(words: Sequence[str], environ: Mapping[str, str], folder: Path, bounds: Bounds) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        list(words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=folder,
        env=environ,
        restore_signals=False,  # SIGXFSZ stays ignored: a file that becomes too large is an error, not its end
    )
    if sys.platform != "win32":
        bounds.apply(process.pid)
    return process


def _listen(process: subprocess.Popen[str], bounds: Bounds, cache: str) -> tuple[str, str]:
    until = time.monotonic() + _TIMEOUT
    while True:
        try:
            return process.communicate(timeout=_LOOK)
        except subprocess.TimeoutExpired:
            excess = bounds.exceeded(process.pid)
        if excess:
            _end(process, cache)
            raise SolveError(f"uv was stopped while reading packages: {excess[0]}", excess[1])
        if time.monotonic() > until:
            raise SolveError(f"uv did not finish within {_TIMEOUT // 60} minutes", "try again, or pin versions")


def _end(process: subprocess.Popen[str], cache: str) -> None:
    """With its temporary files, which would fill the disk."""
    if sys.platform != "win32":
        process.send_signal(signal.SIGSTOP)
    folders = temporary_folders(process.pid, cache)
    process.kill()
    process.wait()
    for one in folders:
        shutil.rmtree(one, ignore_errors=True)
