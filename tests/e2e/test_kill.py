"""Submits under kill -9: none is lost, started twice, or in need of manual repair."""

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
from . import kill_harness
from .kill_harness import CLIENT_STAGES, SEED, Attempt, Fault, Order, World, fault_at_stage

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


def test_checkers_detect_violations(world):
    """Simulate each violation: a second start, a lost end, a truncated log, a lost run, and a leftover process."""
    order = Order("k")
    [attempt] = kill_harness.execute_order(world, order)
    assert kill_harness.find_violations(world) == []
    log, observed, records = (
        world.user.folder(attempt.run) / "log",
        world.observer.read_text(),
        kill_harness.records(world),
    )
    world.observer.write_text(observed + "start k 1\n")
    assert "more than once" in kill_harness.check_runs(world, records)[0]
    world.observer.write_text(observed.replace("end k\n", ""))
    assert "completed without a start and an end" in kill_harness.check_runs(world, records)[0]
    world.observer.write_text(observed)
    log.write_bytes(log.read_bytes()[:-1])
    assert "its log is not what" in kill_harness.check_runs(world, records)[0]
    assert (
        kill_harness.check_keys(world, [])
        and kill_harness.check_printed(world, [])
        and kill_harness.check_folders(world, [])
    )
    assert kill_harness.check_keys(world, records * 2)
    left = world.user.start("logs", "-f", attempt.run, cwd=world.project, env={"MLW_FAILPOINT": "none"})
    os.kill(left.pid, signal.SIGSTOP)
    assert kill_harness.processes_using(world.user.store) == [left.pid]
    left.kill()
    left.communicate()


# -- random kills and concurrent submits -----------------------------------------------------------------


def test_sixty_submits_under_random_kills(world):
    [warm] = kill_harness.execute_order(world, Order("warm"))
    over = threading.Event()
    ui = threading.Thread(target=list_continuously, args=(world, over))
    ui.start()
    kill_harness.run_parallel(
        lambda order: kill_harness.execute_order(world, order), kill_harness.orders(60, SEED, warm.seconds)
    )
    over.set()
    ui.join()
    hits = sum(attempt.hit for attempt in world.attempts)
    show(seed=SEED, typical=f"{warm.seconds:.2f}", attempts=len(world.attempts), hit=hits)
    assert hits >= 30
    kill_harness.assert_no_violations(world)
    kill_harness.assert_rebuild_is_equal(world)


def list_continuously(world, over):
    """List the runs continuously, as from another terminal."""
    while not over.is_set():
        waiting(world)


def test_fifty_submits_with_one_key_create_one_run(world):
    """The store is empty, so that the submits also compete to create it."""
    order = Order("same", lines=50)
    kill_harness.run_parallel(lambda _: kill_harness.execute_order(world, order), range(50), workers=50)
    assert world.count("start", "same") == 1
    assert {(attempt.code, attempt.out) for attempt in world.attempts} == {(0, kill_harness.expected_log(order))}
    kill_harness.assert_no_violations(world)


def test_one_key_submitted_by_many_killed_clients(world):
    stages = [fault_at_stage(stage) for stage in CLIENT_STAGES] + [Fault("client", None, n / 20) for n in range(12)]
    orders = [Order("same", (fault,), lines=20) for fault in stages]
    kill_harness.run_parallel(lambda order: kill_harness.execute_order(world, order), orders, workers=len(orders))
    kill_harness.assert_no_violations(world)


def test_submit_waits_for_store_creation(world):
    """SQLite's busy timeout does not apply when the journal mode is set, so mlw itself must wait."""
    world.user.store.mkdir(mode=0o700)
    other = apsw.Connection(str(world.user.store / "history.db"))
    other.execute("BEGIN IMMEDIATE")
    client = world.user.start("ps", cwd=world.project)
    assert kill_harness.until(lambda: client.poll() is not None or has_open(client.pid, "history.db"))
    kill_harness.until(lambda: client.poll() is not None, 0.5)
    other.execute("ROLLBACK")
    other.close()
    err = client.communicate(timeout=kill_harness.TIMEOUT)[1]
    assert client.returncode == 0, err


def has_open(pid, name):
    try:
        return any(os.readlink(path).endswith(name) for path in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_lock_check_does_not_prevent_start(world):
    """A process that checks the run's lock holds it briefly. A supervisor that gives up meanwhile must be replaced."""
    order = Order("k", (fault_at_stage("claiming"),))
    [attempt] = kill_harness.execute_order(world, order)
    client = world.user.start(
        *world.submit_arguments(order), cwd=world.project, env={"MLW_FAILPOINT": "launching:sleep=0.7"}
    )
    assert kill_harness.until(lambda: submitter(world, attempt.run) == client.pid)
    with open(world.user.folder(attempt.run) / "lock", "rb") as look:
        fcntl.flock(look, fcntl.LOCK_EX)
        assert kill_harness.until(lambda: kill_harness.processes_of(attempt.run))
        assert kill_harness.until(lambda: not kill_harness.processes_of(attempt.run))
    out, err = client.communicate(timeout=kill_harness.TIMEOUT)
    assert (client.returncode, out) == (0, kill_harness.expected_log(order)), err
    kill_harness.assert_no_violations(world)


def submitter(world, run):
    connection = apsw.Connection(str(world.user.store / "history.db"), flags=apsw.SQLITE_OPEN_READONLY)
    [(text,)] = connection.execute("SELECT submitter FROM bodies JOIN runs USING (seq) WHERE id = ?", (run,))
    connection.close()
    return json.loads(text).get("pid")  # None after a failed submit has released the run


# -- kills at named stages -------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", CLIENT_STAGES)
@pytest.mark.parametrize("way", ["key", "resume"])
def test_submit_finishes_after_client_kill_at_stage(world, stage, way):
    order = Order("k", (fault_at_stage(stage),))
    [attempt] = kill_harness.execute_order(world, order)
    assert attempt.hit
    shown = waiting(world)
    if stage == "launched-here":
        assert all(run["detail"] != "interrupted" for run in shown)
    else:
        interrupted = [("Submitting", "interrupted")] if stage in WITH_ROW else []
        assert [(run["status"], run["detail"]) for run in shown] == interrupted
    if way == "resume" and shown:
        done = world.user.mlw("experiment", "resume", shown[0]["run_id"])
        assert (done.code, done.stdout) == (0, kill_harness.expected_log(order)), done
    kill_harness.assert_no_violations(world)


@pytest.mark.parametrize("killed_again", [False, True])
@pytest.mark.parametrize("stage", UNCLAIMED)
def test_canceled_interrupted_submit_never_starts(world, stage, killed_again):
    kill_harness.execute_order(world, Order("k", (fault_at_stage(stage),)))
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
def test_listing_at_any_stage_changes_nothing(world, stage):
    """List the runs from another terminal while the submit is alive at this stage."""
    order, states = Order("k"), set()
    client = world.user.start(
        *world.submit_arguments(order), cwd=world.project, env={"MLW_FAILPOINT": f"{stage}:sleep=1"}
    )
    while client.poll() is None:
        states |= {(run["status"], run["detail"]) for run in waiting(world)}
    out, err = client.communicate()
    assert (client.returncode, out) == (0, kill_harness.expected_log(order)), err
    assert ("Submitting", "interrupted") not in states
    world.attempts.append(Attempt(order, Fault(), 0, out, err.decode(), 0))
    kill_harness.assert_no_violations(world)


@pytest.mark.parametrize("stage", [*UNCLAIMED, "claiming"])
def test_waiting_submit_takes_over_when_first_dies(world, stage):
    """The first submit pauses at the stage while the second waits for it, and then dies."""
    order = Order("k")
    env = {"MLW_FAILPOINT": f"{stage}:sleep=1.5,{stage}:kill"}
    first = world.user.start(*world.submit_arguments(order), cwd=world.project, env=env)
    assert kill_harness.until(lambda: (world.user.store / "history.db").exists() and world.user.runs())
    [second] = kill_harness.execute_order(world, order)
    first.communicate()
    assert (second.code, second.out) == (0, kill_harness.expected_log(order)), second
    kill_harness.assert_no_violations(world)


def test_follower_killed_twenty_times(world):
    choose = random.Random(SEED)
    order = Order("k", lines=300, pause=0.01, detach=True)
    [attempt] = kill_harness.execute_order(world, order)
    whole = kill_harness.expected_log(order)
    for _ in range(20):
        follower = world.user.start("logs", "-f", attempt.run, cwd=world.project)
        time.sleep(choose.uniform(0.05, 0.25))
        follower.kill()
        assert whole.startswith(follower.communicate()[0])
    assert world.user.mlw("logs", "-f", attempt.run).stdout == whole
    assert world.user.mlw("logs", attempt.run).stdout == whole
    kill_harness.assert_no_violations(world)


# -- strace: kills at every write between two stages -----------------------------------------------------


def sample(points, count):
    chosen = random.Random(SEED).sample(points, min(count, len(points)))
    show(seed=SEED, points=len(points), tried=len(chosen))
    return sorted(chosen, key=points.index)


def assert_kills_hit(hits):
    """Check that kills hit, because a test whose kills miss proves nothing."""
    show(struck=sum(hits))
    assert sum(hits) >= 0.7 * len(hits)


def test_client_killed_before_any_modifying_call(world, tmp_path):
    need("strace")
    points = kill_harness.client_points(world, tmp_path / "trace", everything=False)
    assert_kills_hit(
        kill_harness.run_parallel(
            lambda point: kill_harness.kill_client_before(world, point, everything=False), sample(points, 30)
        )
    )


def test_client_killed_before_sending_secrets(world, tmp_path):
    """The launched program never receives the secrets and must not start the script without them."""
    need("strace")
    order = Order("k", secret="mellon")
    kill_harness.trace_client(
        world.with_empty_store("calm"), order, ["-e", "trace=write", "-o", str(tmp_path / "trace")]
    )
    writes = [line for line in (tmp_path / "trace").read_text().splitlines() if line.startswith("write(")]
    [nth] = [number for number, line in enumerate(writes, 1) if '"{\\"secrets' in line]
    assert kill_harness.kill_client_before(world, kill_harness.CallPoint("write", nth), everything=False)


def test_all_processes_killed_before_same_call(world, tmp_path):
    """strace -f counts per process: client, supervisor, launcher, and script each die at that call."""
    need("strace")
    points = kill_harness.client_points(world, tmp_path / "trace", everything=True)
    assert_kills_hit(
        kill_harness.run_parallel(
            lambda point: kill_harness.kill_client_before(world, point, everything=True), sample(points, 20)
        )
    )


@pytest.mark.parametrize(("who", "stage"), [("supervisor", "claimed"), ("launcher", "before-gate")])
def test_supervisor_or_launcher_killed_before_any_call(world, tmp_path, who, stage):
    need("strace")
    points = kill_harness.target_points(world, tmp_path / "trace", stage)
    assert_kills_hit(
        kill_harness.run_parallel(
            lambda point: kill_harness.kill_target_before(world, point, who, stage), sample(points, 40), workers=6
        )
    )
    kill_harness.assert_no_violations(world)


@pytest.mark.parametrize(("others", "pause"), [(1, 0.5), (6, 0.5), (1, 0.0)], ids=["amidst", "many", "afterwards"])
def test_late_orphaned_start_request_starts_nothing(world, tmp_path, others, pause):
    """The client dies after its start request; the request is slow, and others submit the same key meanwhile."""
    need("strace")
    order, log = Order("k", pause=pause), tmp_path / "trace"
    hold = ["-f", "-e", "trace=flock", "-e", "inject=flock:delay_enter=1000000:when=1", "-o", str(log)]
    command = ["strace", "-q", *hold, str(kill_harness.MLW), *world.submit_arguments(order)]
    tracer = subprocess.Popen(
        command, cwd=world.project, env=world.user.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    # strace delays the process at this call.
    assert kill_harness.until(lambda: log.exists() and "flock(" in log.read_text())
    [client] = kill_harness.children(tracer.pid)
    os.kill(client, signal.SIGKILL)
    kill_harness.run_parallel(lambda _: kill_harness.execute_order(world, order), range(others), workers=others)
    assert tracer.wait(kill_harness.TIMEOUT) == -signal.SIGKILL
    assert {attempt.code for attempt in world.attempts} == {0}, world.attempts
    kill_harness.assert_no_violations(world)


@pytest.mark.parametrize("victims", [("launcher",), ("supervisor", "launcher")])
def test_launcher_killed_between_fork_and_exec(world, victims):
    """The script's process exists but has not executed the script yet: no command may report that the run ended."""
    need("strace")
    order = Order("k", tuple(Fault(who, "fork") for who in victims), detach=True)
    hold = ["-f", "-e", "trace=execve", "-e", "inject=execve:delay_enter=1000000", "-o", "/dev/null"]

    def strike(folder, launcher):
        assert kill_harness.until(lambda: kill_harness.children(launcher))
        pids = {"launcher": launcher, "supervisor": kill_harness.owner(folder)}
        for who in victims:
            assert kill_harness.kill_ours(pids[who], world.user.store)
        waiting(world)  # the next contact, which recovers the run

    kill_harness.trace_target(world, order, "before-gate", hold, strike)
    kill_harness.assert_no_violations(world)
