"""Start programs, read their output from a pipe, and record when it arrives. Contestants take turns."""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from machine import Quiet

HELLO = b"hello\n"
Result = TypeVar("Result")


@dataclass(frozen=True)
class Program:
    """A command with its folder and environment."""

    command: tuple[str, ...]
    folder: Path
    environment: dict[str, str]


@dataclass(frozen=True)
class Timing:
    """Seconds since the start of the process, and peak memory in bytes."""

    first: float  # until the first byte, or the first line that was requested
    last: float  # until the last byte
    total: float  # until the exit of the process
    size: int
    memory: int

    @property
    def rate(self) -> float:
        """Return bytes per second, from the first to the last byte."""
        return self.size / max(self.last - self.first, 1e-9)


def measure(program: Program, first_line: bytes | None = None, out: int | None = None) -> Timing:
    """Run a program that writes to ``out`` or a pipe. With ``first_line``, ``first`` is the time of that line."""
    reader, writer = os.pipe() if out is None else (None, out)
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(
            program.command,
            cwd=program.folder,
            env=program.environment,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=errors,
        )
        first = last = math.nan
        size = 0
        if reader is not None:
            os.close(writer)
            first, last, size = _drain(reader, first_line)
        _, status, usage = os.wait4(process.pid, 0)
        ended = time.perf_counter()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode or (first_line and math.isnan(first)):
            errors.seek(0)
            message = errors.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(program.command)} ended with {process.returncode}: {message}")
    return Timing(first - began, last - began, ended - began, size, usage.ru_maxrss * 1024)


def _drain(reader: int, first_line: bytes | None) -> tuple[float, float, int]:
    first = last = math.nan
    size = 0
    seen = b"\n"
    while True:
        data = os.read(reader, 1 << 16)
        if not data:
            break
        last = time.perf_counter()
        size += len(data)
        if math.isnan(first):
            if first_line is not None:
                seen += data
            if first_line is None or b"\n" + first_line in seen:
                first = last
    os.close(reader)
    return first, last, size


@dataclass(frozen=True)
class Contestant(Generic[Result]):
    """An action to measure. ``rounds``: maximum number for a slow action. ``between``: called after each run."""

    name: str
    action: Callable[[], Result]
    rounds: int | None = None
    between: Callable[[], None] = lambda: None


def take_turns(
    contestants: Sequence[Contestant[Result]], rounds: int, quiet: Quiet, warm_up: bool = True
) -> dict[str, list[Result]]:
    """Run all contestants in turns. Each round starts with another one. Warm-up runs (cold caches) are not counted."""
    results: dict[str, list[Result]] = {contestant.name: [] for contestant in contestants}
    for contestant in contestants if warm_up else ():
        contestant.action()
        contestant.between()
    for number in range(rounds):
        turn = number % len(contestants)
        for contestant in (*contestants[turn:], *contestants[:turn]):
            if contestant.rounds is None or number % math.ceil(rounds / contestant.rounds) == 0:
                quiet.wait()
                results[contestant.name].append(contestant.action())
                contestant.between()
    return results
