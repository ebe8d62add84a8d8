"""``make soak``: kills mlw (kill -9) during submits to each kind of target. The checks are those of the kill test.

Compared with the test: larger numbers, a new seed each time, and (on `local`) strace at every system call instead of a
sample. The report goes to results/soak.txt, one section per kind of target; only the sections that ran are replaced.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.conftest import User, end_processes  # noqa: E402 - needs the path above
from tests.e2e import kill_harness, kill_harness_remote  # noqa: E402
from tests.e2e.kill_harness import CLIENT_STAGES, Fault, Order, World, fault_at_stage  # noqa: E402

TARGETS = ("local", *kill_harness_remote.KINDS)
RESULT = ROOT / "benchmarks" / "results" / "soak.txt"
HEADING = "=== "
SAME_KEY_ROUNDS = 10
SUPERVISOR_POINTS = 300  # sampled: a supervisor makes over 1,000 calls, most of them while it waits


class Report:
    """The lines of the report, which are also printed, and the errors."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.wrong: list[str] = []

    def say(self, text: str = "") -> None:
        self.lines.append(text)
        print(text, flush=True)

    def judge(self, what: str, wrong: list[str]) -> None:
        self.say(f"{what}: {'ok' if not wrong else f'{len(wrong)} WRONG'}")
        self.wrong += wrong

    def timed(self, what: str, body: Callable[[], Any]) -> Any:
        began = time.monotonic()
        answer = body()
        self.say(f"{what} took {time.monotonic() - began:.0f} s")
        return answer


def main() -> int:
    User.installed = True  # run the installed program instead of a fork
    options = arguments()
    wrong = []
    for target in options.target or TARGETS:
        report = Report()
        began = time.monotonic()
        introduce(report, options, target)
        (soak_here if target == "local" else soak_elsewhere)(report, options, target)
        conclude(report, time.monotonic() - began)
        keep_section(target, report.lines)
        wrong += report.wrong
    return 1 if wrong else 0


def soak_here(report: Report, options: argparse.Namespace, target: str) -> None:
    place = Path(tempfile.mkdtemp(prefix="mlw-soak-"))
    user = User(place)
    try:
        world = World.of(user)
        submits(report, world, options.submits, options.seed)
        same_key(report, world)
        if options.strace:
            system_calls(report, world, place, options.seed)
    finally:
        end_processes(place)
        shutil.rmtree(place, ignore_errors=True)


def soak_elsewhere(report: Report, options: argparse.Namespace, target: str) -> None:
    """Submit and kill on a remote machine until the number of kills is reached."""
    with kill_harness_remote.remote_world(target) as world:
        [warm] = kill_harness.execute_order(world, Order("warm"))
        mix = dataclasses.replace(kill_harness_remote.MIX, max_delay=0.7 * warm.seconds)
        orders = kill_harness.orders(2 * options.kills, options.seed, warm.seconds, mix)
        report.say(f"\n{kill_harness.WORKERS} submits at once; an undisturbed submit takes {warm.seconds:.2f} s")
        report.timed("submitting and killing", lambda: kill_harness_remote.run_orders(world, orders, options.kills))
        verdict(report, world, options.seed)
        if sum(one.hit for one in world.attempts) < options.kills:
            report.wrong.append(f"fewer than {options.kills} kills hit")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Submits under kill -9, in numbers.")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only this kind of target (repeatable)")
    parser.add_argument("--submits", type=int, default=1000, help="on the target local")
    parser.add_argument("--kills", type=int, default=300, help="on each target that is reached by SSH")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**8))
    parser.add_argument("--no-strace", dest="strace", action="store_false", help="leave out the system calls")
    parser.add_argument("--note", help="a line for the report")
    return parser.parse_args()


def introduce(report: Report, options: argparse.Namespace, target: str) -> None:
    commit = git("rev-parse", "--short", "HEAD") + (" and local changes" if git("status", "--short", "src") else "")
    amount = ("--submits", options.submits) if target == "local" else ("--kills", options.kills)
    report.say(f"{HEADING}{target}: mlw under kill -9, {amount[1]:,} {amount[0][2:]}, seed {options.seed}")
    report.say(f"{time.strftime('%Y-%m-%d %H:%M')}, commit {commit}, {os.cpu_count()} cores, {platform.platform()}")
    report.say(f"again: python benchmarks/soak.py --target {target} {amount[0]} {amount[1]} --seed {options.seed}")
    if options.note:
        report.say(options.note)


def keep_section(target: str, lines: list[str]) -> None:
    """Replace this target's section of the report and keep the others."""
    text = RESULT.read_text() if RESULT.exists() else ""
    sections = {part.partition(":")[0]: part.strip() for part in f"\n{text}".split(f"\n{HEADING}")[1:]}
    sections[target] = "\n".join(lines).removeprefix(HEADING).strip()
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text("\n\n".join(HEADING + sections[name] for name in TARGETS if name in sections) + "\n")


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


# -- random kills ---------------------------------------------------------------------------------------


def submits(report: Report, world: World, count: int, seed: int) -> None:
    [warm] = kill_harness.execute_order(world, Order("warm"))
    orders = kill_harness.orders(count, seed, warm.seconds)
    report.say(f"\n== {count:,} keys, {kill_harness.WORKERS} at once; an undisturbed submit takes {warm.seconds:.2f} s")
    report.timed(
        "the nemesis", lambda: kill_harness.run_parallel(lambda one: kill_harness.execute_order(world, one), orders)
    )
    verdict(report, world, seed)


def verdict(report: Report, world: World, seed: int) -> None:
    tell_hits(report, world)
    wrong = report.timed("two recoveries and the checkers", lambda: kill_harness.find_violations(world))
    tell_runs(report, world)
    report.judge("verdict", kept(world, seed, wrong))


def tell_hits(report: Report, world: World) -> None:
    calls = Counter(str(one.fault) for one in world.attempts)
    hits = Counter(str(one.fault) for one in world.attempts if one.hit)
    report.say(f"calls of submit: {calls.total():,}, of them hit by a kill: {hits.total():,}")
    report.say(f"  {'who was killed, and when':<34} {'calls':>6} {'hit':>6}")
    for name in sorted(calls):
        report.say(f"  {name:<34} {calls[name]:>6} {hits[name]:>6}")
    calm = sorted(one.seconds for one in world.attempts if one.fault.who == "nobody" and not one.order.detach)
    if len(calm) > 1:
        report.say(f"undisturbed calls meanwhile: median {statistics.median(calm):.2f} s, longest {calm[-1]:.2f} s")


def tell_runs(report: Report, world: World) -> None:
    records = kill_harness.records(world)
    seen = Counter(line[0] for line in world.observed())
    per_key = Counter(line[1] for line in world.observed() if line[0] == "start")
    report.say(f"runs: {len(records):,} for {len(world.orders):,} keys")
    report.say(f"scripts begun: {seen['start']:,}; come to their end: {seen['end']:,}")
    report.say(
        f"lost: {len(world.orders) - len(records)}; begun more than once: {sum(n > 1 for n in per_key.values())}"
    )
    endings = Counter(str(record["ending"]) for record in records)
    report.say("endings: " + ", ".join(f"{name} {count:,}" for name, count in endings.most_common()))
    left = Counter(word for store in world.stores for word in kill_harness.leftover_files(store))
    report.say("left in the store: " + (", ".join(f"{count} {name}" for name, count in left.items()) or "nothing"))


def kept(world: World, seed: int, wrong: list[str]) -> list[str]:
    return [kill_harness.save(world, seed, wrong)] if wrong else []


# -- one key from many clients (N3) ----------------------------------------------------------------------


def same_key(report: Report, world: World) -> None:
    report.say(f"\n== one key from 50 clients at once, {SAME_KEY_ROUNDS} rounds, every second one with kills")
    for number in range(SAME_KEY_ROUNDS):
        separate = world.with_empty_store(f"same-{number}")
        kill_harness.run_parallel(
            lambda one, where=separate: kill_harness.execute_order(where, one), fifty(number % 2 == 1), workers=50
        )
        wrong = kill_harness.find_violations(separate)
        starts = separate.count("start", "same")
        report.judge(f"round {number + 1}: {starts} start", kept(separate, number, wrong))


def fifty(killed: bool) -> list[Order]:
    faults = [Fault() for _ in range(50)]
    if killed:
        faults = [fault_at_stage(stage) for stage in CLIENT_STAGES] * 3 + [
            Fault("client", None, n / 30) for n in range(35)
        ]
    return [Order("same", (fault,), lines=20) for fault in faults]


# -- strace ----------------------------------------------------------------------------------------------


def system_calls(report: Report, world: World, place: Path, seed: int) -> None:
    if shutil.which("strace") is None:
        report.say("\nstrace is not installed: the system calls are left out")
        return
    for everything in (False, True):
        points = kill_harness.client_points(world, place / f"trace-{everything}", everything)
        who = "client, supervisor, launcher and script" if everything else "the client"
        report.say(f"\n== {who} killed before each of {len(points)} system calls that change something")
        done = report.timed("that", lambda e=everything, f=points: each(world, f, e))
        report.say(f"killed in fact: {sum(hit for hit, _ in done)} of {len(done)}")
        report.judge("verdict", [words for _, words in done if words])
    for who, stage in (("supervisor", "claimed"), ("launcher", "before-gate")):
        far_calls(report, world, place, seed, who, stage)


def each(world: World, points: Iterable[kill_harness.CallPoint], everything: bool) -> list[tuple[bool, str]]:
    """Kill at each point. Return for each whether a process was killed, and an error message or an empty string."""

    def strike(point: kill_harness.CallPoint) -> tuple[bool, str]:
        try:
            return kill_harness.kill_client_before(world, point, everything), ""
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return False, f"{point}: {error}"

    return kill_harness.run_parallel(strike, points)


def far_calls(report: Report, world: World, place: Path, seed: int, who: str, stage: str) -> None:
    separate = world.with_empty_store(f"far-{who}")
    points = kill_harness.target_points(separate, place / f"trace-{who}", stage)
    some = random.Random(seed).sample(points, min(len(points), SUPERVISOR_POINTS))
    report.say(f"\n== the {who} killed before {len(some)} of its {len(points)} system calls")
    work = lambda: kill_harness.run_parallel(  # noqa: E731
        lambda one: kill_harness.kill_target_before(separate, one, who, stage), some, workers=6
    )
    hits = report.timed("that", work)
    report.say(f"killed in fact: {sum(hits)} of {len(hits)}")
    wrong = kill_harness.find_violations(separate)
    tell_runs(report, separate)
    report.judge("verdict", kept(separate, seed, wrong))


def conclude(report: Report, seconds: float) -> None:
    told = "everything holds" if not report.wrong else f"{len(report.wrong)} complaints"
    report.say(f"\n== {told}; {seconds:.0f} s in all")
    for words in report.wrong:
        report.say(words)


if __name__ == "__main__":
    sys.exit(main())
