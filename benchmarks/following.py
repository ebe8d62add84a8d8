"""Throughput and memory of reading a log, and the latency of a line."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import machine
from context import Context
from table import Line, Section, mb, median, ms, quantile, rate_of
from timing import Contestant, Program, Timing, measure, take_turns

RATE_AIM = 200e6
DELAY_AIM = 0.3
STORED, LIVE = 2_000_000_000, 500_000_000
TICKS, DISTANCE = 200, 0.05
RARE_TICKS, RARE_DISTANCE = 10, 2.0
RATE = f"≥ {RATE_AIM / 1e6:.0f} MB/s"


def throughput_section(context: Context) -> Section:
    section = Section("follow throughput")
    section.notes.append(f"load average before: {machine.load()}")
    quiet = context.quiet()
    project = context.project("flood")
    section.lines += _stored(context, project, quiet)
    section.lines += _live(context, project, quiet)
    section.notes += [
        f"{context.slow} rounds each; {quiet.words()}",
        "lines of 100 bytes, log in the page cache; the reader is this program, with reads of 64 kB; stored logs from "
        "the start of the process to its exit, live ones from the first byte to the last",
    ]
    return section


# -- a finished run ------------------------------------------------------------------------------------


def _stored(context: Context, project: Path, quiet: machine.Quiet) -> list[Line]:
    short = context.detach(project, "hello.py")
    long = context.detach(project, "flood.py", str(STORED))
    context.settle()
    log = long / "log"
    assert log.stat().st_size == STORED
    contestants = [
        Contestant("cat", lambda: measure(Program(("cat", str(log)), project, context.environment))),
        Contestant("pipe", lambda: measure(context.mlw(project, "logs", long.name))),
        Contestant("null", lambda: _to_null(context.mlw(project, "logs", long.name))),
        Contestant("short", lambda: measure(context.mlw(project, "logs", short.name))),
    ]
    results = take_turns(contestants, context.slow, quiet)
    assert all(timing.size == STORED for name in ("cat", "pipe") for timing in results[name])
    context.forget(long)
    rates = {name: [STORED / timing.total for timing in results[name]] for name in ("cat", "pipe", "null")}
    return [
        _rate_line("`mlw logs RUN \\| reader`, 2 GB", rates["pipe"], f"`cat log \\| reader`: {rate_of(rates['cat'])}",
                   median(rates["cat"])),
        _rate_line("`mlw logs RUN > /dev/null`, 2 GB", rates["null"], "", 0.0),
        _memory_line(results),
    ]  # fmt: skip


def _to_null(program: Program) -> Timing:
    out = os.open(os.devnull, os.O_WRONLY)
    try:
        return measure(program, out=out)
    finally:
        os.close(out)


def _rate_line(what: str, rates: list[float], beside: str, floor: float) -> Line:
    ratio = f"{median(rates) / floor:.0%}" if floor else ""
    return Line(what, rate_of(rates), beside, ratio, RATE, median(rates) >= RATE_AIM)


def _memory_line(results: dict[str, list[Timing]]) -> Line:
    """Report peak memory. It may be too high: between fork and exec, the child has the memory of this process."""
    long, short = (max(timing.memory for timing in results[name]) for name in ("pipe", "short"))
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    most = "at most " if long <= own else ""
    beside = f"log of one line: {mb(short)}"
    return Line("its peak memory, log of 2 GB", most + mb(long), beside, f"adds {mb(long - short)}", "constant",
                long - short < 32e6)  # fmt: skip


# -- a running script ----------------------------------------------------------------------------------


def _live(context: Context, project: Path, quiet: machine.Quiet) -> list[Line]:
    def submit() -> Timing:
        timing = measure(context.mlw(project, "submit", "flood.py", str(LIVE)))
        context.forget(context.newest())
        return timing

    contestants = [
        Contestant("python", lambda: measure(context.python(project, "flood.py", str(LIVE)))),
        Contestant("mlw", submit),
    ]
    results = take_turns(contestants, context.slow, quiet)
    assert all(one.size == LIVE for got in results.values() for one in got)
    rates = {name: [one.rate for one in got] for name, got in results.items()}
    beside = f"`python flood.py \\| reader`: {rate_of(rates['python'])}"
    what = "`mlw submit flood.py \\| reader`, 500 MB while they are written"
    return [_rate_line(what, rates["mlw"], beside, median(rates["python"]))]


# -- latency -------------------------------------------------------------------------------------------


def delay_section(context: Context) -> Section:
    section = Section("from print() to the reader")
    section.notes.append(f"load average before: {machine.load()}")
    project = context.project("ticks")
    quiet = context.quiet()
    cases = (("every 50 ms", TICKS // 2, DISTANCE, 2), ("every 2 s", RARE_TICKS, RARE_DISTANCE, 1))
    for words, count, distance, rounds in cases:
        section.lines.append(_delay_line(context, project, quiet, words, (count, distance, rounds)))
    section.notes.append(f"each line carries the time at which it was printed; {quiet.words()}")
    return section


def _delay_line(
    context: Context, project: Path, quiet: machine.Quiet, words: str, plan: tuple[int, float, int]
) -> Line:
    count, distance, rounds = plan
    script = ("ticks.py", str(count), str(distance))
    contestants = [
        Contestant("python", _delays_of(context.python(project, *script))),
        Contestant("mlw", _delays_of(context.mlw(project, "submit", *script)), None, context.settle),
    ]
    results = take_turns(contestants, rounds, quiet, warm_up=False)
    ours, floor = (sum(results[name], []) for name in ("mlw", "python"))
    assert len(ours) == len(floor) == count * rounds
    late = quantile(ours, 0.99)
    value = f"p50 {ms(median(ours))}, p99 {ms(late)}, max {ms(max(ours))}"
    beside = f"bare Python into the pipe: p50 {ms(median(floor))}, p99 {ms(quantile(floor, 0.99))}"
    aim = f"p99 ≤ {ms(DELAY_AIM)}"
    return Line(f"a line {words}, {len(ours)} lines", value, beside, "", aim, late <= DELAY_AIM)


def _delays_of(program: Program) -> Callable[[], list[float]]:
    """Return a function that runs the program and returns the seconds from print to arrival of each line."""

    def read() -> list[float]:
        delays = []
        with subprocess.Popen(
            program.command, cwd=program.folder, env=program.environment, stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, bufsize=0,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            rest = b""
            while data := os.read(process.stdout.fileno(), 1 << 16):
                now = time.monotonic_ns()
                *lines, rest = (rest + data).split(b"\n")
                delays += [(now - int(line)) / 1e9 for line in lines]
        return delays

    return read
