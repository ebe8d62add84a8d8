"""Compare this commit with another, in turns: ``python benchmarks/beside.py /other/checkout/.venv/bin/mlw``.

Both programs take turns on the same machines, so the ratio is valid even if the speed of the machines varies.
The table is printed to standard output.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import machine
from context import Context
from remote_laptop import DOCKER, PLAIN, RemoteLaptop, laptop, remote_laptop
from remote_runs import fill
from table import Line, Section, mb, median, page, time_of
from timing import HELLO, Contestant, Timing, measure, take_turns

AIM = 1.05
STORED = 300_000_000  # size of a log in bytes

Versions = dict[str, Context]
Results = dict[str, list[Timing]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="mlw program of another checkout")
    parser.add_argument("--quick", type=int, default=31, help="rounds of what takes less than a second (%(default)s)")
    parser.add_argument("--slow", type=int, default=9, help="rounds of the rest (%(default)s)")
    arguments = parser.parse_args()
    quiet = machine.Quiet(120)
    with ExitStack() as stack:
        versions = {
            "before": Context.make(arguments.quick, arguments.slow, 120, arguments.other),
            "now": Context.make(arguments.quick, arguments.slow, 120),
        }
        for context in versions.values():
            stack.callback(context.remove)
        sections = [_local(versions, quiet), _remote(versions, quiet)]
    facts = machine.facts(Path(__file__).parent)
    print(page(f"This commit beside {arguments.other}", facts, sections))
    return 0


def _compare(name: str, results: Results, value: Callable[[Timing], float] = lambda timing: timing.first) -> Line:
    before, now = ([value(timing) for timing in results[version]] for version in ("before", "now"))
    ratio, smallest = median(now) / median(before), min(now) / min(before)
    text = f"{ratio:.3f}× (of the smallest: {smallest:.3f}×)"
    return Line(name, time_of(now), time_of(before), text, f"≤ {AIM:.2f}×", min(ratio, smallest) <= AIM)


def _compare_memory(name: str, results: Results) -> Line:
    before, now = (median([timing.memory for timing in results[version]]) for version in ("before", "now"))
    return Line(name, mb(now), mb(before), f"{now / before:.3f}×", f"≤ {AIM:.2f}×", now / before <= AIM)


def _turns(
    actions: dict[str, Callable[[], Timing]], rounds: int, quiet: machine.Quiet, settle: Callable[[], None]
) -> Results:
    contestants = [Contestant(name, action, None, settle) for name, action in actions.items()]
    return take_turns(contestants, rounds, quiet)


# -- local runs ------------------------------------------------------------------------------------------


def _local(versions: Versions, quiet: machine.Quiet) -> Section:
    section = Section("on this machine", notes=[f"load average before: {machine.load()}"])
    section.lines += _commands_here(versions, quiet)
    section.lines += _large_project(
        {version: context.project("large") for version, context in versions.items()},
        {version: _submit_here(context) for version, context in versions.items()},
        next(iter(versions.values())).slow,
        quiet,
        lambda: _settle(versions),
    )
    section.notes.append(f"{quiet.words()}")
    return section


def _settle(versions: Versions) -> None:
    for context in versions.values():
        context.settle()


def _submit_here(context: Context) -> Callable[[Path], Timing]:
    return lambda project: measure(context.mlw(project, "submit", "hello.py"), HELLO)


def _commands_here(versions: Versions, quiet: machine.Quiet) -> Iterator[Line]:
    projects = {version: context.project("plain") for version, context in versions.items()}
    rounds = next(iter(versions.values())).quick

    def measured(*arguments: str, first_line: bytes | None = None) -> Results:
        def action(version: str) -> Callable[[], Timing]:
            return lambda: measure(versions[version].mlw(projects[version], *arguments), first_line)

        return _turns({version: action(version) for version in versions}, rounds, quiet, lambda: _settle(versions))

    yield _compare("`mlw --help`", measured("--help"), lambda timing: timing.total)
    submits = measured("submit", "hello.py", first_line=HELLO)
    yield _compare("`mlw submit hello.py`, first line", submits)
    yield _compare("the same, exit", submits, lambda timing: timing.total)
    yield _compare_memory("the same, peak memory", submits)
    yield _compare("`mlw history list`", measured("history", "list"), lambda timing: timing.total)


def _large_project(
    projects: dict[str, Path],
    submits: dict[str, Callable[[Path], Timing]],
    rounds: int,
    quiet: machine.Quiet,
    settle: Callable[[], None],
) -> Iterator[Line]:
    """Measure first, unchanged, and changed submits of 10,000 files."""
    for project in projects.values():
        fill(project / "data", 1)
    time.sleep(3)  # a submit caches no digests of files changed within two seconds
    first: Results = {}
    for version, project in projects.items():
        quiet.wait()
        first[version] = [submits[version](project)]
        settle()
    yield _compare("first submit of 10,000 files", first)

    def change(project: Path) -> None:
        with open(project / "data" / "part-00" / "module_00000.py", "ab") as file:
            file.write(b"# changed at %d\n" % time.monotonic_ns())

    def action(version: str, before_each: Callable[[Path], None]) -> Callable[[], Timing]:
        def act() -> Timing:
            before_each(projects[version])
            return submits[version](projects[version])

        return act

    for name, before_each in (("unchanged", lambda _: None), ("one file changed", change)):
        actions = {version: action(version, before_each) for version in projects}
        yield _compare(f"10,000 files, {name}", _turns(actions, rounds, quiet, settle))


# -- remote runs -----------------------------------------------------------------------------------------


def _remote(versions: Versions, quiet: machine.Quiet) -> Section:
    section = Section("over SSH", notes=[f"load average before: {machine.load()}"])
    before, now = versions.values()
    with remote_laptop(before) as one, laptop(now, one.engine, one.host) as other:
        laptops = {"before": one, "now": other}
        section.lines += _first_lines(laptops, quiet)
        section.lines += _large_project(
            {version: remote.project(f"large-{version}") for version, remote in laptops.items()},
            {version: _submit_to(remote, PLAIN) for version, remote in laptops.items()},
            now.slow,
            quiet,
            other.settle,
        )
        section.lines.append(_stored_log(laptops, quiet))
    section.notes.append(f"{quiet.words()}")
    return section


def _submit_to(remote: RemoteLaptop, target: str) -> Callable[[Path], Timing]:
    return lambda project: measure(remote.mlw(project, "submit", "-c", target, "hello.py"), HELLO)


def _first_lines(laptops: dict[str, RemoteLaptop], quiet: machine.Quiet) -> Iterator[Line]:
    projects = {version: remote.project(f"hello-{version}") for version, remote in laptops.items()}
    settle = laptops["now"].settle

    def action(version: str, target: str) -> Callable[[], Timing]:
        return lambda: _submit_to(laptops[version], target)(projects[version])

    for target in (DOCKER, PLAIN):
        actions = {version: action(version, target) for version in laptops}
        results = _turns(actions, laptops["now"].context.quick, quiet, settle)
        yield _compare(f"`mlw submit -c {target} hello.py`, first line", results)
        yield _compare("the same, exit", results, lambda timing: timing.total)


def _stored_log(laptops: dict[str, RemoteLaptop], quiet: machine.Quiet) -> Line:
    actions: dict[str, Callable[[], Timing]] = {}
    for version, remote in laptops.items():
        project = remote.project(f"flood-{version}")
        run = remote.detach(project, "-c", PLAIN, "flood.py", str(STORED))
        log = remote.folder / "store" / "runs" / run / "log"

        def read(remote: RemoteLaptop = remote, project: Path = project, run: str = run, log: Path = log) -> Timing:
            log.unlink(missing_ok=True)
            return measure(remote.mlw(project, "logs", "-f", run))

        actions[version] = read
    results = _turns(actions, laptops["now"].context.slow, quiet, lambda: None)
    return _compare("`mlw logs -f RUN`, 300 MB", results, lambda timing: timing.total)


if __name__ == "__main__":
    sys.exit(main())
