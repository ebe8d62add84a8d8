"""Submits under kill -9: none lost, none started twice, none that needs repair by hand (N1–N3; F01, F02, F06–F10)."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import apsw
import pytest

from ..conftest import need
from . import killing
from .killing import CLIENT_STAGES, SEED, Attempt, Fault, Order, World, staged

WITH_ROW = tuple(stage for stage in CLIENT_STAGES if stage != "snapshot")
UNCLAIMED = ("recorded", "foldered", "launching")


@pytest.fixture
def world(user):
    return World.of(user)


def show(**facts):
    print(" ".join(f"{name}={value}" for name, value in facts.items()))


def waiting(world):
    done = world.user.mlw("ps", "--all", "-o", "json")
    assert done.code == 0, done
    return json.loads(done.out)


def test_the_checkers_notice(world):
    """What they are there for, made up: a second start, a lost end, a cut log, a lost run, a process left behind."""
    order = Order("k")
    [attempt] = killing.carry_out(world, order)
    assert killing.judge(world) == []
    log, seen, found = world.user.folder(attempt.run) / "log", world.observer.read_text(), killing.records(world)
    world.observer.write_text(seen + "start k 1\n")
    assert "more than once" in killing.check_runs(world, found)[0]
    world.observer.write_text(seen.replace("end k\n", ""))
    assert "completed without a start and an end" in killing.check_runs(world, found)[0]
    world.observer.write_text(seen)
    log.write_bytes(log.read_bytes()[:-1])
    assert "its log is not what" in killing.check_runs(world, found)[0]
    assert killing.check_keys(world, []) and killing.check_printed(world, []) and killing.check_folders(world, [])
    assert killing.check_keys(world, found * 2)
    left = world.user.start("logs", "-f", attempt.run, cwd=world.project, env={"MLW_FAILPOINT": "none"})
    os.kill(left.pid, signal.SIGSTOP)
    assert killing.marked(world.user.store) == [left.pid]
    left.kill()
    left.communicate()


# -- N1, N2, N3 ------------------------------------------------------------------------------------------


def test_sixty_submits_under_random_kills(world):
    [warm] = killing.carry_out(world, Order("warm"))
    over = threading.Event()
    looker = threading.Thread(target=look_on, args=(world, over))
    looker.start()
    killing.at_once(lambda order: killing.carry_out(world, order), killing.orders(60, SEED, warm.seconds))
    over.set()
    looker.join()
    hits = sum(one.hit for one in world.attempts)
    show(seed=SEED, typical=f"{warm.seconds:.2f}", attempts=len(world.attempts), hit=hits)
    assert hits >= 30
    killing.must_hold(world)
    killing.must_stay_after_rebuild(world)


def look_on(world, over):
    """Somebody in another terminal who looks at the list all the time."""
    while not over.is_set():
        waiting(world)


def test_fifty_submits_with_one_key_are_one_run(world):
    """On an empty store, so that they also compete for making it."""
    order = Order("same", lines=50)
    killing.at_once(lambda _: killing.carry_out(world, order), range(50), workers=50)
    assert world.count("start", "same") == 1
    assert {(one.code, one.out) for one in world.attempts} == {(0, killing.expected_log(order))}
    killing.must_hold(world)


def test_one_key_from_many_clients_that_are_killed(world):
    stages = [staged(stage) for stage in CLIENT_STAGES] + [Fault("client", None, n / 20) for n in range(12)]
    orders = [Order("same", (fault,), lines=20) for fault in stages]
    killing.at_once(lambda order: killing.carry_out(world, order), orders, workers=len(orders))
    killing.must_hold(world)


def test_a_store_that_another_process_is_making_is_waited_for(world):
    """SQLite itself does not wait when the journal is set up."""
    world.user.store.mkdir(mode=0o700)
    other = apsw.Connection(str(world.user.store / "history.db"))
    other.execute("BEGIN IMMEDIATE")
    client = world.user.start("ps", cwd=world.project)
    assert killing.until(lambda: client.poll() is not None or has_open(client.pid, "history.db"))
    killing.until(lambda: client.poll() is not None, 0.5)
    other.execute("ROLLBACK")
    other.close()
    err = client.communicate(timeout=killing.PATIENCE)[1]
    assert client.returncode == 0, err


def has_open(pid, name):
    try:
        return any(os.readlink(path).endswith(name) for path in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_a_look_at_the_lock_does_not_keep_a_run_from_starting(world):
    """It lasts microseconds, here longer; a supervisor that comes meanwhile must not take it for a rival."""
    order = Order("k", (staged("claiming"),))
    [attempt] = killing.carry_out(world, order)
    client = world.user.start(*world.words(order), cwd=world.project, env={"MLW_FAILPOINT": "launching:sleep=0.7"})
    assert killing.until(lambda: submitter(world, attempt.run) == client.pid)
    with open(world.user.folder(attempt.run) / "lock", "rb") as look:
        fcntl.flock(look, fcntl.LOCK_EX)
        assert killing.until(lambda: killing.processes_of(attempt.run))
        assert killing.until(lambda: not killing.processes_of(attempt.run))
    out, err = client.communicate(timeout=killing.PATIENCE)
    assert (client.returncode, out) == (0, killing.expected_log(order)), err
    killing.must_hold(world)


def submitter(world, run):
    connection = apsw.Connection(str(world.user.store / "history.db"), flags=apsw.SQLITE_OPEN_READONLY)
    [(text,)] = connection.execute("SELECT submitter FROM bodies JOIN runs USING (seq) WHERE id = ?", (run,))
    connection.close()
    return json.loads(text).get("pid")  # none, once a submit that failed has released it


# -- each stage by name ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", CLIENT_STAGES)
@pytest.mark.parametrize("way", ["key", "resume"])
def test_client_killed_at_a_stage_then_finished(world, stage, way):
    order = Order("k", (staged(stage),))
    [attempt] = killing.carry_out(world, order)
    assert attempt.hit
    shown = waiting(world)
    if stage == "launched-here":
        assert all(one["detail"] != "interrupted" for one in shown)
    else:
        interrupted = [("Submitting", "interrupted")] if stage in WITH_ROW else []
        assert [(one["status"], one["detail"]) for one in shown] == interrupted
    if way == "resume" and shown:
        done = world.user.mlw("experiment", "resume", shown[0]["run_id"])
        assert (done.code, done.stdout) == (0, killing.expected_log(order)), done
    killing.must_hold(world)


@pytest.mark.parametrize("killed_again", [False, True])
@pytest.mark.parametrize("stage", UNCLAIMED)
def test_interrupted_then_cancelled_never_starts(world, stage, killed_again):
    killing.carry_out(world, Order("k", (staged(stage),)))
    run = waiting(world)[0]["run_id"]
    if killed_again:
        world.user.mlw("cancel", run, env={"MLW_FAILPOINT": "cancel-asked:kill"})
    else:
        assert world.user.mlw("cancel", run).code == 0
    again = world.submit(Order("k"))
    assert (again.code, again.run) == (143, run), again
    record = world.user.info(run)
    assert (record["status"], record["ending"]) == ("Canceled", "cancelled")
    assert world.observed() == []


@pytest.mark.parametrize("stage", CLIENT_STAGES)
def test_a_look_at_the_wrong_moment_changes_nothing(world, stage):
    """Somebody lists runs in another terminal while the submit is at this stage, and alive."""
    order, seen = Order("k"), set()
    client = world.user.start(*world.words(order), cwd=world.project, env={"MLW_FAILPOINT": f"{stage}:sleep=1"})
    while client.poll() is None:
        seen |= {(one["status"], one["detail"]) for one in waiting(world)}
    out, err = client.communicate()
    assert (client.returncode, out) == (0, killing.expected_log(order)), err
    assert ("Submitting", "interrupted") not in seen
    world.attempts.append(Attempt(order, Fault(), 0, out, err.decode(), 0))
    killing.must_hold(world)


@pytest.mark.parametrize("stage", [*UNCLAIMED, "claiming"])
def test_a_second_submit_that_waits_takes_over_when_the_first_dies(world, stage):
    """The first is held at the stage until the second waits for it; then it dies."""
    order = Order("k")
    env = {"MLW_FAILPOINT": f"{stage}:sleep=1.5,{stage}:kill"}
    first = world.user.start(*world.words(order), cwd=world.project, env=env)
    assert killing.until(lambda: (world.user.store / "history.db").exists() and world.user.runs())
    [second] = killing.carry_out(world, order)
    first.communicate()
    assert (second.code, second.out) == (0, killing.expected_log(order)), second
    killing.must_hold(world)


def test_follower_killed_twenty_times(world):
    choose = random.Random(SEED)
    order = Order("k", lines=300, pause=0.01, detach=True)
    [attempt] = killing.carry_out(world, order)
    whole = killing.expected_log(order)
    for _ in range(20):
        follower = world.user.start("logs", "-f", attempt.run, cwd=world.project)
        time.sleep(choose.uniform(0.05, 0.25))
        follower.kill()
        assert whole.startswith(follower.communicate()[0])
    assert world.user.mlw("logs", "-f", attempt.run).stdout == whole
    assert world.user.mlw("logs", attempt.run).stdout == whole
    killing.must_hold(world)


# -- strace: no write lies between two stages unnoticed --------------------------------------------------


def sample(points, count):
    chosen = random.Random(SEED).sample(points, min(count, len(points)))
    show(seed=SEED, points=len(points), tried=len(chosen))
    return sorted(chosen, key=points.index)


def struck(hits):
    """A test whose kills miss proves nothing."""
    show(struck=sum(hits))
    assert sum(hits) >= 0.7 * len(hits)


def test_client_killed_before_any_call_that_changes_something(world, tmp_path):
    need("strace")
    points = killing.client_points(world, tmp_path / "trace", everything=False)
    struck(killing.at_once(lambda point: killing.strike_client(world, point, everything=False), sample(points, 30)))


def test_client_killed_before_it_hands_over_the_secrets(world, tmp_path):
    """The program that it called is there and hears nothing: it must not start the script without them."""
    need("strace")
    order = Order("k", secret="mellon")
    killing.trace_client(world.apart("calm"), order, ["-e", "trace=write", "-o", str(tmp_path / "trace")])
    writes = [line for line in (tmp_path / "trace").read_text().splitlines() if line.startswith("write(")]
    [nth] = [number for number, line in enumerate(writes, 1) if '"{\\"secrets' in line]
    assert killing.strike_client(world, killing.Point("write", nth), everything=False)


def test_everything_killed_before_the_same_call(world, tmp_path):
    """strace -f counts per process: client, supervisor, launcher and script each die where they come to that call."""
    need("strace")
    points = killing.client_points(world, tmp_path / "trace", everything=True)
    struck(killing.at_once(lambda point: killing.strike_client(world, point, everything=True), sample(points, 20)))


@pytest.mark.parametrize(("who", "stage"), [("supervisor", "claimed"), ("launcher", "before-gate")])
def test_supervisor_or_launcher_killed_before_any_call(world, tmp_path, who, stage):
    need("strace")
    points = killing.far_points(world, tmp_path / "trace", stage)
    struck(killing.at_once(lambda point: killing.strike_far(world, point, who, stage), sample(points, 40), workers=6))
    killing.must_hold(world)


@pytest.mark.parametrize(("others", "pause"), [(1, 0.5), (6, 0.5), (1, 0.0)], ids=["amidst", "many", "afterwards"])
def test_an_orphaned_start_that_comes_late_starts_nothing(world, tmp_path, others, pause):
    """F06: the client dies after it has called, its call is slow, and others submit the same key meanwhile."""
    need("strace")
    order, log = Order("k", pause=pause), tmp_path / "trace"
    hold = ["-f", "-e", "trace=flock", "-e", "inject=flock:delay_enter=1000000:when=1", "-o", str(log)]
    command = ["strace", "-q", *hold, str(killing.MLW), *world.words(order)]
    tracer = subprocess.Popen(
        command, cwd=world.project, env=world.user.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert killing.until(lambda: log.exists() and "flock(" in log.read_text())  # it is held there
    [client] = killing.children(tracer.pid)
    os.kill(client, signal.SIGKILL)
    killing.at_once(lambda _: killing.carry_out(world, order), range(others), workers=others)
    assert tracer.wait(killing.PATIENCE) == -signal.SIGKILL
    assert {one.code for one in world.attempts} == {0}, world.attempts
    killing.must_hold(world)


@pytest.mark.parametrize("victims", [("launcher",), ("supervisor", "launcher")])
def test_launcher_killed_between_fork_and_exec(world, victims):
    """The script's process is there and not yet the script: nobody may say that the run has ended."""
    need("strace")
    order = Order("k", tuple(Fault(who, "fork") for who in victims), detach=True)
    hold = ["-f", "-e", "trace=execve", "-e", "inject=execve:delay_enter=1000000", "-o", "/dev/null"]

    def strike(folder, launcher):
        assert killing.until(lambda: killing.children(launcher))
        pids = {"launcher": launcher, "supervisor": killing.owner(folder)}
        for who in victims:
            assert killing.kill_ours(pids[who], world.user.store)
        waiting(world)  # the next contact, which looks after the run

    killing.trace_far(world, order, "before-gate", hold, strike)
    killing.must_hold(world)
