"""A project of 10,000 files and 1 GB: the first submit, an unchanged one, and one with a changed file."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import machine
from context import Context
from table import Line, Section, median, ms, time_of, times
from timing import HELLO, Contestant, Timing, measure, take_turns

ADDED_AIM = 0.200
FOLDERS = 100
# (count, bytes): 10,000 files, 1,000,000,000 bytes; mostly 100 kB, some small, some large.
SIZES = ((9_000, 100_000), (900, 1_000), (100, 991_000))


def resubmit_section(context: Context) -> Section:
    section = Section("re-submit of 10,000 files, 1 GB")
    section.notes.append(f"load average before: {machine.load()}")
    small = context.project("small", context.scratch, git=True)
    large = context.project("large", context.scratch, git=True)
    fill(large / "data")
    time.sleep(3)  # a submit caches no digests of files changed within two seconds
    copied = _copy(large, context.scratch / "copied")
    first = _submit(context, large)
    context.settle()
    section.lines.append(_first_line(first, copied))
    quiet = context.quiet()
    section.lines += _unchanged(context, small, large, quiet)
    section.lines.append(_changed(context, small, large, quiet))
    section.lines.append(_at_once(context, small, large, quiet))
    where = f"{machine.file_system(context.scratch)}, " + (
        "which copies by reflink" if machine.reflinks(context.scratch) else "which has no reflink"
    )
    section.notes += [
        f"store and projects on {where}; all in the page cache; both projects in git, with the data untracked",
        f"{context.quick} rounds, {context.slow} for the last two lines, one for the first submit; {quiet.words()}",
    ]
    return section


def fill(folder: Path) -> None:
    """Write the files of the project. The content is the same in every call."""
    source = random.Random(2)
    sizes = [size for count, size in SIZES for _ in range(count)]
    source.shuffle(sizes)
    for number, size in enumerate(sizes):
        place = folder / f"part-{number % FOLDERS:02}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"sample-{number:05}.bin").write_bytes(source.randbytes(size))


def _copy(project: Path, target: Path) -> float:
    """Measure the baseline of a first submit: copying the same bytes once."""
    began = time.perf_counter()
    subprocess.run(["cp", "-r", "--reflink=auto", str(project), str(target)], check=True)
    return time.perf_counter() - began


def _submit(context: Context, project: Path) -> Timing:
    return measure(context.mlw(project, "submit", "hello.py"), HELLO)


def _first_line(first: Timing, copied: float) -> Line:
    return Line("first submit", ms(first.first), f"one `cp -r`: {ms(copied)}", times(first.first / copied))


def _unchanged(context: Context, small: Path, large: Path, quiet: machine.Quiet) -> list[Line]:
    ready: list[float] = []

    def settle() -> None:
        began = time.perf_counter()
        context.settle()
        ready.append(time.perf_counter() - began)

    contestants = [
        Contestant("small", lambda: _submit(context, small).first, None, context.settle),
        Contestant("large", lambda: _submit(context, large).first, None, settle),
    ]
    results = take_turns(contestants, context.quick, quiet)
    aim = f"adds ≤ {ms(ADDED_AIM)}"
    beside, ratio, added = _compared(results)
    return [
        Line("unchanged re-submit", time_of(results["large"]), beside, ratio, aim, added <= ADDED_AIM),
        Line("its working copy ready for the next run, after the exit of `mlw submit`", time_of(ready[1:])),
    ]


def _changed(context: Context, small: Path, large: Path, quiet: machine.Quiet) -> Line:
    changed = large / "data" / "part-00" / "sample-00000.bin"

    def submit_changed() -> float:
        with open(changed, "ab") as file:
            file.write(b"changed\n")
        return _submit(context, large).first

    contestants = [
        Contestant("small", lambda: _submit(context, small).first, None, context.settle),
        Contestant("large", submit_changed, None, context.settle),
    ]
    results = take_turns(contestants, context.slow, quiet)
    beside, ratio, _ = _compared(results)
    return Line("re-submit after one file changed", time_of(results["large"]), beside, ratio)


def _at_once(context: Context, small: Path, large: Path, quiet: machine.Quiet) -> Line:
    """Measure a submit right after the previous one exits, while its supervisor may still be cleaning up."""

    def submit_at_once(project: Path) -> float:
        _submit(context, project)
        return _submit(context, project).first

    contestants = [
        Contestant("small", lambda: submit_at_once(small), None, context.settle),
        Contestant("large", lambda: submit_at_once(large), None, context.settle),
    ]
    results = take_turns(contestants, context.slow, quiet, warm_up=False)
    beside, ratio, _ = _compared(results)
    return Line("unchanged, at the very exit of the one before", time_of(results["large"]), beside, ratio)


def _compared(results: dict[str, list[float]]) -> tuple[str, str, float]:
    added = median(results["large"]) - median(results["small"])
    return f"near-empty project: {time_of(results['small'])}", f"adds {ms(added)}", added
