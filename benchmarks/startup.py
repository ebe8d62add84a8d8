"""Duration of ``mlw --help``, and of a submit until the script's first line."""

from __future__ import annotations

import sys

import machine
import peers
from context import Context
from table import Line, Section, median, ms, time_of, times
from timing import HELLO, Contestant, Program, Timing, measure, take_turns

HELP_AIM = 0.100
ADDED_AIM = 0.250
QUICKER_AIM = 5.0

Results = dict[str, list[Timing]]


def help_section(context: Context) -> Section:
    section = Section("mlw --help")
    section.notes.append(f"load average before: {machine.load()}")
    installed = [peer for peer in peers.find_all() if peer.program]
    programs = {
        "python": Program((sys.executable, "-c", "pass"), context.workspace, context.environment),
        "mlw": context.mlw(context.workspace, "--help"),
        **{peer.name: peers.helping(peer, context) for peer in installed},
    }
    quiet = context.quiet()
    contestants = [Contestant(name, lambda program=program: measure(program)) for name, program in programs.items()]
    results = {
        name: [timing.total for timing in got] for name, got in take_turns(contestants, context.quick, quiet).items()
    }
    ours, floor = results["mlw"], results["python"]
    ratio = times(median(ours) / median(floor))
    aim = f"≤ {ms(HELP_AIM)}"
    beside = f"`python -c pass`, same environment: {time_of(floor)}"
    section.lines.append(Line("`mlw --help`", time_of(ours), beside, ratio, aim, median(ours) <= HELP_AIM))
    for peer in installed:
        theirs = results[peer.name]
        ratio = times(median(theirs) / median(ours))
        section.lines.append(Line(f"`{peer.name} --help`", time_of(theirs), "`mlw --help`", ratio))
    section.notes.append(f"median and smallest of {context.quick} rounds; {quiet.words()}")
    return section


def first_line_section(context: Context) -> Section:
    section = Section("submit of print() to its first line")
    section.notes.append(f"load average before: {machine.load()}")
    installed = peers.find_all()
    quiet = context.quiet()
    results = take_turns(_contestants(context, installed), context.quick, quiet)
    section.lines += _our_lines(results, [peer.name for peer in installed if peer.program])
    section.lines += [_peer_line(peer, results) for peer in installed]
    section.lines += _exit_lines(results)
    section.notes += [
        f"median and smallest of {context.quick} rounds, {context.slow} for the peers; {quiet.words()}",
        "time from the start of the process until the line `hello` was read from the pipe that is its stdout; "
        "the supervisor of one submit has ended before the next contestant starts",
        "peers: " + "; ".join(f"{peer.name} {peer.version or 'not installed: ' + peer.problem}" for peer in installed),
    ]
    return section


def _contestants(context: Context, installed: list[peers.Peer]) -> list[Contestant[Timing]]:
    plain, tracked = context.project("plain"), context.project("tracked", git=True)

    def contestant(name: str, program: Program, rounds: int | None = None) -> Contestant[Timing]:
        return Contestant(name, lambda: measure(program, HELLO), rounds, context.settle)

    return [
        contestant("python", context.python(plain, "-u", "hello.py")),
        contestant("mlw", context.mlw(plain, "submit", "hello.py")),
        contestant("mlw in git", context.mlw(tracked, "submit", "hello.py")),
        *(contestant(peer.name, peers.running(peer, context), context.slow) for peer in installed if peer.program),
    ]


def _first(results: Results, name: str) -> list[float]:
    return [timing.first for timing in results[name]]


def _our_lines(results: Results, installed: list[str]) -> list[Line]:
    floor = _first(results, "python")
    lines = [Line("`python -u hello.py` (the floor)", time_of(floor))]
    for name, what in (("mlw", "`mlw submit hello.py`"), ("mlw in git", "the same, project in a git repository")):
        added = median(_first(results, name)) - median(floor)
        aim = f"adds ≤ {ms(ADDED_AIM)}"
        beside = f"bare Python {ms(median(floor))}"
        value = time_of(_first(results, name))
        lines.append(Line(what, value, beside, f"adds {ms(added)}", aim, added <= ADDED_AIM))
    if installed:
        best = min(installed, key=lambda name: median(_first(results, name)))
        ratio = median(_first(results, best)) / median(_first(results, "mlw"))
        beside = f"quickest peer, {best}: {ms(median(_first(results, best)))}"
        aim = f"≥ {QUICKER_AIM:.0f}× quicker"
        value = ms(median(_first(results, "mlw")))
        lines.append(Line("`mlw submit` against peers", value, beside, times(ratio), aim, ratio >= QUICKER_AIM))
    return lines


def _peer_line(peer: peers.Peer, results: Results) -> Line:
    what = f"`{peer.name} {' '.join(peer.recipe.run)}`"
    if not peer.program:
        return Line(what, "not installed", peer.problem)
    theirs = _first(results, peer.name)
    ratio = times(median(theirs) / median(_first(results, "mlw")))
    return Line(what, time_of(theirs), "`mlw submit`", ratio)


def _exit_lines(results: Results) -> list[Line]:
    totals = {name: [timing.total for timing in got] for name, got in results.items()}
    others = ", ".join(f"{name} {ms(median(got))}" for name, got in totals.items() if not name.startswith("mlw"))
    return [Line("`mlw submit` to its exit", time_of(totals["mlw"]), others)]
