"""Run uv on this machine with resource limits, because it reads archives from project indexes."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import SolveError
from ..remote.shared.unpacking_limits import (
    MAX_BYTES,
    TOO_LARGE,
    UnpackingLimits,
    is_file_size_error,
    temporary_folders,
    uv_cache,
)

_TIMEOUT = 900
_POLL_INTERVAL = 0.25


def run_limited(command: Sequence[str], environ: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run uv and return its result.

    Raises SolveError if uv cannot start, times out, or unpacks too much.
    """
    cache = uv_cache(environ, str(folder))
    bounds = UnpackingLimits(MAX_BYTES, cache)
    try:
        process = _start(command, environ, folder, bounds)
    except OSError as error:
        raise SolveError(
            f"cannot start uv: {error.strerror}", "reinstall it: pip install --force-reinstall uv"
        ) from None
    with process:
        try:
            out, err = _wait(process, bounds, cache)
        except BaseException:
            process.kill()
            raise
    if is_file_size_error(err):
        raise SolveError(f"uv failed to unpack a package:\n{err.strip()[-600:]}", TOO_LARGE)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _start(
    command: Sequence[str], environ: Mapping[str, str], folder: Path, bounds: UnpackingLimits
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=folder,
        env=environ,
        restore_signals=False,  # SIGXFSZ stays ignored: exceeding the size limit is an error and does not kill uv
    )
    if sys.platform != "win32":
        bounds.apply(process.pid)
    return process


def _wait(process: subprocess.Popen[str], bounds: UnpackingLimits, cache: str) -> tuple[str, str]:
    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            return process.communicate(timeout=_POLL_INTERVAL)
        except subprocess.TimeoutExpired:
            excess = bounds.exceeded(process.pid)
        if excess:
            _kill(process, cache)
            raise SolveError(f"uv was stopped while reading packages: {excess[0]}", excess[1])
        if time.monotonic() > deadline:
            raise SolveError(f"uv did not finish within {_TIMEOUT // 60} minutes", "try again, or pin versions")


def _kill(process: subprocess.Popen[str], cache: str) -> None:
    """Kill the process and delete its temporary files, which would otherwise fill the disk."""
    if sys.platform != "win32":
        process.send_signal(signal.SIGSTOP)
    folders = temporary_folders(process.pid, cache)
    process.kill()
    process.wait()
    for path in folders:
        shutil.rmtree(path, ignore_errors=True)
