"""Starts a program, reads its output from a pipe, and says when what arrived. Contestants take turns."""

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
    """A command, and where and how it is started."""

    command: tuple[str, ...]
    folder: Path
    environment: dict[str, str]


@dataclass(frozen=True)
class Timing:
    """Seconds since the start of the process; bytes of memory at its peak."""

    first: float  # until the first byte, or the first line that was asked for
    last: float  # until the last byte
    total: float  # until its exit
    size: int
    memory: int

    @property
    def rate(self) -> float:
        """Bytes a second, from the first to the last."""
        return self.size / max(self.last - self.first, 1e-9)


def measure(program: Program, first_line: bytes | None = None, out: int | None = None) -> Timing:
    """Run to the end, output to ``out``, else through a pipe; ``first_line`` is the line that counts as the first."""
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
            said = errors.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(program.command)} ended with {process.returncode}: {said}")
    return Timing(first - began, last - began, ended - began, size, usage.ru_maxrss * 1024)


def _drain(reader: int, wanted: bytes | None) -> tuple[float, float, int]:
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
            if wanted is not None:
                seen += data
            if wanted is None or b"\n" + wanted in seen:
                first = last
    os.close(reader)
    return first, last, size


@dataclass(frozen=True)
class Contestant(Generic[Result]):
    """``rounds``: how often a slow one takes part; ``between``: what must be over before the next one starts."""

    name: str
    action: Callable[[], Result]
    rounds: int | None = None
    between: Callable[[], None] = lambda: None


def take_turns(
    contestants: Sequence[Contestant[Result]], rounds: int, quiet: Quiet, warm_up: bool = True
) -> dict[str, list[Result]]:
    """Round robin, each round begun by another contestant; the first time of each (cold caches) does not count."""
    results: dict[str, list[Result]] = {one.name: [] for one in contestants}
    for one in contestants if warm_up else ():
        one.action()
        one.between()
    for number in range(rounds):
        turn = number % len(contestants)
        for one in (*contestants[turn:], *contestants[:turn]):
            if one.rounds is None or number % math.ceil(rounds / one.rounds) == 0:
                quiet.wait()
                results[one.name].append(one.action())
                one.between()
    return results
