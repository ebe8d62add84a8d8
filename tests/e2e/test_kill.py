"""Submits under kill -9: none lost, none started twice, none that needs repair by hand (N1, N2, N3; F01, F02, F06–F10)."""

from __future__ import annotations

import json
import random
import time

import pytest

from ..conftest import need
from . import killing
from .killing import CHANGING, CLIENT_STAGES, HOLDING, SEED, Fault, Order, World

WITH_ROW = tuple(stage for stage in CLIENT_STAGES if stage != "snapshot")


@pytest.fixture
def world(user):
    return World.of(user)


def show(**facts):
    print(" ".join(f"{name}={value}" for name, value in facts.items()))


def test_sixty_submits_under_random_kills(world):
    typical = killing.carry_out(world, Order("warm")).seconds
    killing.carry_out_all(world, killing.orders(60, SEED, typical))
    hits = sum(bool(one.hits) for one in world.attempts)
    show(seed=SEED, typical=f"{typical:.2f}", hit=hits)
    assert hits >= 30
    killing.must_hold(world)


def test_fifty_submits_with_one_key_are_one_run(world):
    """On an empty store, so that they also compete for making it."""
    order = Order("same", lines=50)
    killing.at_once(lambda _: killing.carry_out(world, order), range(50), workers=50)
    assert world.count("start", "same") == 1
    assert {one.code for one in world.attempts} == {0}, killing.save(world, 0, [one.err for one in world.attempts])
    assert {one.out for one in world.attempts} == {killing.expected_log(order)}
    killing.must_hold(world)


@pytest.mark.parametrize("stage", CLIENT_STAGES)
@pytest.mark.parametrize("way", ["key", "resume"])
def test_client_killed_at_a_stage_then_finished(world, stage, way):
    order = Order("k", killing.staged(stage))
    attempt = killing.carry_out(world, order)
    assert attempt.hits == [f"client at {stage}"]
    shown = waiting(world)
    if stage == "launched-here":
        assert all(one["detail"] != "interrupted" for one in shown)
    else:
        assert [(one["status"], one["detail"]) for one in shown] == interrupted(stage)
    if way == "resume" and shown:
        done = world.user.mlw("experiment", "resume", shown[0]["run_id"])
        assert (done.code, done.stdout) == (0, killing.expected_log(order)), done
    killing.must_hold(world)


def interrupted(stage):
    return [("Submitting", "interrupted")] if stage in WITH_ROW else []


def waiting(world):
    done = world.user.mlw("ps", "--all", "-o", "json")
    assert done.code == 0, done
    return json.loads(done.out)


@pytest.mark.parametrize("stage", ["recorded", "foldered", "launching"])
def test_interrupted_then_cancelled_never_starts(world, stage):
    killing.carry_out(world, Order("k", killing.staged(stage)))
    run = waiting(world)[0]["run_id"]
    done = world.user.mlw("cancel", run)
    assert done.code == 0, done
    again = world.submit(Order("k"))
    assert (again.code, again.run) == (143, run), again
    record = world.user.info(run)
    assert (record["status"], record["ending"]) == ("Canceled", "cancelled")
    assert world.observed() == []


@pytest.mark.parametrize("stage", CLIENT_STAGES)
def test_a_look_at_the_wrong_moment_changes_nothing(world, stage):
    """Somebody lists runs in another terminal while the submit is at this stage, and alive."""
    order = Order("k")
    client = world.user.start(
        *world.words(order), cwd=world.project, env={"MLW_FAILPOINT": f"{stage}:sleep=1"}
    )
    seen = set()
    while client.poll() is None:
        seen |= {(one["status"], one["detail"]) for one in waiting(world)}
    out, err = client.communicate()
    assert (client.returncode, out) == (0, killing.expected_log(order)), err
    assert not {one for one in seen if one[1] == "interrupted"}
    world.attempts.append(killing.Attempt(order, 0, out, err.decode(), [], 0))
    killing.must_hold(world)


@pytest.mark.parametrize("stage", ["recorded", "foldered", "launching", "claiming"])
def test_a_second_submit_that_waits_takes_over_when_the_first_dies(world, stage):
    first = world.user.start(
        *world.words(Order("k")), cwd=world.project, env={"MLW_FAILPOINT": f"{stage}:sleep=2,{stage}:kill"}
    )
    assert killing.until(lambda: rows(world))
    second = killing.carry_out(world, Order("k"))
    first.communicate()
    assert (second.code, second.out) == (0, killing.expected_log(Order("k"))), second
    killing.must_hold(world)


def rows(world):
    return (world.user.store / "history.db").exists() and world.user.runs()


def test_follower_killed_twenty_times(world):
    choose = random.Random(SEED)
    order = Order("k", lines=400, pause=0.01, detach=True)
    run = killing.carry_out(world, order).run
    whole = killing.expected_log(order)
    for _ in range(20):
        follower = world.user.start("logs", "-f", run, cwd=world.project)
        time.sleep(choose.uniform(0.05, 0.3))
        follower.kill()
        assert whole.startswith(follower.communicate()[0])
    last = world.user.mlw("logs", "-f", run)
    assert last.stdout == whole
    assert world.user.mlw("logs", run).stdout == whole
    killing.must_hold(world)


# -- strace: no write lies between two stages unnoticed --------------------------------------------------


def sample(points, count):
    chosen = random.Random(SEED).sample(points, min(count, len(points)))
    show(seed=SEED, points=len(points), tried=len(chosen))
    return sorted(chosen, key=points.index)


def strike_client(world, point, options, **order):
    """Kill before one system call of a first submit in an empty store, recover, judge."""
    apart = world.apart(str(point).replace(" ", "-") + "-" * len(options))
    fault = Fault("client", f"strace: {point}")
    killing.trace_client(apart, Order("k", fault, secret="mellon", **order), [*options, *point.inject])
    if options:
        apart.allowed = frozenset(["k"])
    killing.must_hold(apart)


def test_client_killed_before_any_call_that_changes_something(world, tmp_path):
    need("strace")
    killing.trace_client(world.apart("calm"), Order("k"), ["-o", str(tmp_path / "trace")])
    points = [point for point in killing.points(tmp_path / "trace") if point.call in CHANGING]
    killing.at_once(lambda point: strike_client(world, point, []), sample(points, 30))


def test_everything_killed_before_the_same_call(world, tmp_path):
    """strace -f counts per process: the client, the supervisor, the launcher and the script die where they come to it."""
    need("strace")
    killing.trace_client(world.apart("calm"), Order("k", detach=True), ["-ff", "-o", str(tmp_path / "trace")])
    found = {point: None for path in tmp_path.glob("trace.*") for point in killing.points(path)}
    points = sorted((point for point in found if point.call in CHANGING), key=str)
    killing.at_once(lambda point: strike_client(world, point, ["-f"], detach=True), sample(points, 20))


@pytest.mark.parametrize(("who", "stage", "count"), [("supervisor", "claimed", 30), ("launcher", "before-gate", 80)])
def test_supervisor_or_launcher_killed_before_any_call(world, tmp_path, who, stage, count):
    need("strace")
    order = Order("calm", detach=True)
    killing.trace_far(world, order, stage, ["-o", str(tmp_path / "trace")])
    points = [point for point in killing.points(tmp_path / "trace") if point.call not in HOLDING]

    def strike(point):
        fault = Fault(who, f"strace: {point}")
        killing.trace_far(world, Order(str(point).replace(" ", "-"), fault, detach=True), stage, point.inject)

    killing.at_once(strike, sample(points, count))
    killing.must_hold(world)


@pytest.mark.parametrize("victims", [("launcher",), ("supervisor", "launcher")])
def test_launcher_killed_between_fork_and_exec(world, victims):
    """The script's process is there and not yet the script: nobody may say that the run has ended."""
    need("strace")
    order = Order("k", Fault(victims[0], "fork"), detach=True)
    hold = ["-f", "-e", "trace=execve", "-e", "inject=execve:delay_enter=1500000", "-o", "/dev/null"]

    def strike(folder, launcher):
        assert killing.until(lambda: killing.children(launcher))
        pids = {"launcher": launcher, "supervisor": killing.owner(folder)}
        for who in victims:
            assert killing.kill_ours(pids[who], world.user.store)
        shown = world.user.mlw("ps", "--all", "-o", "json")  # the next contact, which looks after the run
        assert shown.code == 0, shown

    killing.trace_far(world, order, "before-gate", hold, strike)
    killing.must_hold(world)
