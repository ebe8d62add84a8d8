"""Runs on a remote machine: time to the first line, upload speed of code, and download speed of logs."""

from __future__ import annotations

import random
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import machine
from context import Context
from remote_laptop import DOCKER, PLAIN, RemoteLaptop, remote_laptop
from table import Line, Section, median, ms, rate_of, time_of, times
from timing import HELLO, Contestant, Program, Timing, measure, take_turns

SHARED_AIM = 1.8  # multiple of the baseline over a shared connection
SECOND_AIM = 1.0
ADDED_AIM = 0.100
RATE_AIM = 100e6
FOLDERS = 100
SIZES = ((8_000, 2_000), (1_900, 20_000), (100, 400_000))  # (count, bytes): 10,000 files, 94 MB
STORED, LIVE = 500_000_000, 300_000_000

Results = dict[str, list[Timing]]


def _begin(title: str) -> Section:
    return Section(title, notes=[f"load average before: {machine.load()}"])


# -- time to the first line ------------------------------------------------------------------------------


def remote_first_line_section(context: Context) -> Section:
    section = _begin("submit of print() over SSH, to its first line")
    quiet = context.quiet()
    with remote_laptop(context) as remote:
        results = take_turns(_first_lines(remote), context.quick, quiet)
    section.lines += _compare(results, DOCKER, "docker run --rm image python3 -u hello.py")
    section.lines += _compare(results, PLAIN, "python3 -u hello.py")
    for target in (DOCKER, PLAIN):
        ours, floor = ([timing.total for timing in results[f"{who} {target}"]] for who in ("mlw", "shared"))
        beside = f"kept connection: {time_of(floor)}"
        section.lines.append(Line(f"`mlw submit -c {target} hello.py` to its exit", time_of(ours), beside))
    section.notes += [
        f"median and smallest of {context.quick} rounds; {quiet.words()}",
        "time from the start of the process until the line `hello` was read from the pipe that is its stdout; all "
        "is warm (connection of mlw, image, code); the run before is over and its container gone",
        "the machine is on this computer: own network, processes and users, a real sshd and a Docker engine; the "
        "floors are `ssh` with a new connection, and with one that ControlMaster keeps",
    ]
    return section


def _first_lines(remote: RemoteLaptop) -> list[Contestant[Timing]]:
    project = remote.project("hello")
    commands = {DOCKER: remote.docker_run("hello", "hello.py"), PLAIN: ("python3", "-u", "hello/hello.py")}

    def contestant(name: str, program: Program) -> Contestant[Timing]:
        return Contestant(name, lambda: measure(program, HELLO), None, remote.settle)

    contestants = []
    for target, command in commands.items():
        contestants += [
            contestant(f"fresh {target}", remote.ssh(*command)),
            contestant(f"shared {target}", remote.ssh(*command, shared=True)),
            contestant(f"mlw {target}", remote.mlw(project, "submit", "-c", target, "hello.py")),
        ]
    return contestants


def _compare(results: Results, target: str, title: str) -> list[Line]:
    fresh, shared, ours = (
        [timing.first for timing in results[f"{who} {target}"]] for who in ("fresh", "shared", "mlw")
    )
    middle = median(ours)
    what = f"`mlw submit -c {target} hello.py`"
    lines = [
        Line(what, time_of(ours), f"`ssh host {title}`, new connection: {time_of(fresh)}",
             _ratio(ours, fresh), "≤ 1.0×", middle <= median(fresh)),
        Line("the same", ms(middle), "", "", f"≤ {ms(SECOND_AIM)}", middle <= SECOND_AIM),
    ]  # fmt: skip
    beside = f"the same `ssh`, connection kept: {time_of(shared)}"
    if target == DOCKER:
        met = middle <= SHARED_AIM * median(shared)
        lines.insert(1, Line("the same", ms(middle), beside, _ratio(ours, shared), f"≤ {SHARED_AIM:.1f}×", met))
    else:
        added = f"adds {ms(middle - median(shared))} (smallest: {ms(min(ours) - min(shared))})"
        lines.insert(1, Line("the same", ms(middle), beside, added))
    return lines


def _ratio(ours: list[float], floor: list[float]) -> str:
    """Return the ratios of the medians and of the minima. Minima are least disturbed by other work."""
    return f"{median(ours) / median(floor):.2f}× (of the smallest: {min(ours) / min(floor):.2f}×)"


# -- upload of code --------------------------------------------------------------------------------------


def upload_section(context: Context) -> Section:
    section = _begin("code of 10,000 files, 94 MB, over SSH")
    quiet = context.quiet()
    with remote_laptop(context) as remote:
        line, large = _first_upload(context, remote, quiet)
        section.lines += [line, *_again(context, remote, large, remote.project("empty"), quiet)]
    section.notes += [
        f"target {PLAIN} (no container); {context.slow} rounds, at most three first uploads, each of a new project; "
        f"{quiet.words()}",
        "beside it: `rsync -a --delete` through a kept connection, then `ssh host python3 -u hello.py`; both to the "
        "line `hello`; half of each file is text, the rest does not shrink",
    ]
    return section


def fill(folder: Path, seed: int) -> None:
    """Write 10,000 files; each seed gives different content."""
    source = random.Random(seed)
    sizes = [size for count, size in SIZES for _ in range(count)]
    source.shuffle(sizes)
    for number, size in enumerate(sizes):
        place = folder / f"part-{number % FOLDERS:02}"
        place.mkdir(parents=True, exist_ok=True)
        half = size // 2
        text = b"value = %d  # of file %d\n" % (source.getrandbits(40), number) * (half // 24 + 1)
        (place / f"module_{number:05}.py").write_bytes(text[:half] + source.randbytes(size - half))


def _submit(remote: RemoteLaptop, project: Path) -> Timing:
    return measure(remote.mlw(project, "submit", "-c", PLAIN, "hello.py"), HELLO)


def _rsync(remote: RemoteLaptop, project: Path) -> Timing:
    target = f"{remote.host.home}/{project.name}"
    copy = shlex.join(remote.rsync(project, target).command)
    run = shlex.join(remote.ssh("python3", "-u", f"{target}/hello.py", shared=True).command)
    return measure(Program(("sh", "-c", f"{copy} && {run}"), project, remote.environment), HELLO)


def _first_upload(context: Context, remote: RemoteLaptop, quiet: machine.Quiet) -> tuple[Line, Path]:
    """Measure first uploads. Return the result, and the last project, which is then on the machine."""
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(min(3, context.slow)):
        project = remote.project(f"large{number}")
        fill(project / "data", number)
        time.sleep(3)  # files changed within two seconds would be read twice
        turns = [(ours, _submit), (theirs, _rsync)]
        for figures, act in turns if number % 2 else reversed(turns):
            quiet.wait()
            figures.append(act(remote, project).first)
            remote.settle()
    return Line("first upload", time_of(ours), f"rsync: {time_of(theirs)}", _ratio(ours, theirs)), project


def _again(context: Context, remote: RemoteLaptop, large: Path, empty: Path, quiet: machine.Quiet) -> list[Line]:
    changed = large / "data" / "part-00" / "module_00000.py"

    def change() -> None:
        with open(changed, "ab") as file:
            file.write(b"# changed at %d\n" % time.monotonic_ns())

    def turns(before_each: Callable[[], None]) -> Results:
        def large_one(how: Callable[[RemoteLaptop, Path], Timing]) -> Timing:
            before_each()
            return how(remote, large)

        actions = {
            "empty": lambda: _submit(remote, empty),
            "empty rsync": lambda: _rsync(remote, empty),
            "large": lambda: large_one(_submit),
            "large rsync": lambda: large_one(_rsync),
        }
        contestants = [Contestant(name, action, None, remote.settle) for name, action in actions.items()]
        return take_turns(contestants, context.slow, quiet)

    return [
        *_again_lines("unchanged", turns(lambda: None), f"adds ≤ {ms(ADDED_AIM)}"),
        *_again_lines("one file changed", turns(change), ""),
    ]


def _again_lines(what: str, results: Results, aim: str) -> list[Line]:
    first = {name: [timing.first for timing in got] for name, got in results.items()}
    added = median(first["large"]) - median(first["empty"])
    least = min(first["large"]) - min(first["empty"])
    met = added <= ADDED_AIM if aim else None
    beside = f"near-empty project: {time_of(first['empty'])}"
    ratio = f"adds {ms(added)} (smallest: {ms(least)})"
    theirs = f"rsync: {time_of(first['large rsync'])}, near-empty {time_of(first['empty rsync'])}"
    return [
        Line(what, time_of(first["large"]), beside, ratio, aim, met),
        Line(f"{what}, beside rsync", ms(median(first["large"])), theirs, _ratio(first["large"], first["large rsync"])),
    ]


# -- download of logs ------------------------------------------------------------------------------------


def remote_log_section(context: Context) -> Section:
    section = _begin("logs over SSH")
    quiet = context.quiet()
    with remote_laptop(context) as remote:
        project = remote.project("flood")
        section.lines.append(_stored(context, remote, project, quiet))
        section.lines.append(_live(context, remote, project, quiet))
    section.notes += [
        f"{context.slow} rounds each; {quiet.words()}",
        "lines of 100 bytes, log in the page cache, nothing of it at home; the reader is this program, with reads of "
        "64 kB; the stored log from the start of the process to its exit, the live one from the first byte to the last",
    ]
    return section


def _stored(context: Context, remote: RemoteLaptop, project: Path, quiet: machine.Quiet) -> Line:
    run = remote.detach(project, "-c", PLAIN, "flood.py", str(STORED))
    log = remote.runs / run / "log"
    assert log.stat().st_size == STORED

    def forget() -> None:
        (remote.folder / "store" / "runs" / run / "log").unlink(missing_ok=True)

    forget()
    contestants = [
        Contestant("fresh", lambda: measure(remote.ssh("cat", str(log)))),
        Contestant("shared", lambda: measure(remote.ssh("cat", str(log), shared=True))),
        Contestant("mlw", lambda: measure(remote.mlw(project, "logs", "-f", run)), None, forget),
    ]
    results = take_turns(contestants, context.slow, quiet)
    assert all(timing.size == STORED for got in results.values() for timing in got)
    rates = {name: [STORED / timing.total for timing in got] for name, got in results.items()}
    beside = f"`ssh host cat log`, kept: {rate_of(rates['shared'])}, new: {rate_of(rates['fresh'])}"
    return _rate_line(f"`mlw logs -f RUN \\| reader`, {STORED / 1e6:.0f} MB", rates["mlw"], beside, rates["shared"])


def _live(context: Context, remote: RemoteLaptop, project: Path, quiet: machine.Quiet) -> Line:
    arguments = ("submit", "-c", PLAIN, "flood.py", str(LIVE))
    contestants = [
        Contestant("shared", lambda: measure(remote.ssh("python3", "flood/flood.py", str(LIVE), shared=True))),
        Contestant("mlw", lambda: measure(remote.mlw(project, *arguments)), None, remote.settle),
    ]
    results = take_turns(contestants, context.slow, quiet)
    assert all(timing.size == LIVE for got in results.values() for timing in got)
    rates = {name: [timing.rate for timing in got] for name, got in results.items()}
    beside = f"`ssh host python3 flood.py`, kept: {rate_of(rates['shared'])}"
    what = f"`mlw submit flood.py \\| reader`, {LIVE / 1e6:.0f} MB while they are written"
    return _rate_line(what, rates["mlw"], beside, rates["shared"])


def _rate_line(what: str, rates: list[float], beside: str, floor: list[float]) -> Line:
    ratio = times(median(rates) / median(floor))
    return Line(what, rate_of(rates), beside, ratio, f"≥ {RATE_AIM / 1e6:.0f} MB/s", median(rates) >= RATE_AIM)
