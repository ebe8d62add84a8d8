"""kill -9 on both sides of the connection: each run executes once, and its results are complete."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import replace

import pytest

from tests.e2e import kill_harness, kill_harness_remote
from tests.e2e.kill_harness import Order
from tests.e2e.kill_harness_remote import RemoteWorld
from tests.e2e.remote_target import content, digest
from tests.machines.network import wait_until

# The stages of test_kill, and one that exists only for remote targets.
CLIENT_STAGES = ("connected", *kill_harness.CLIENT_STAGES)


@pytest.fixture
def remote(shared_target):
    return shared_target(sshd="PermitUserEnvironment yes")


@pytest.fixture
def contained(shared_target):
    return shared_target("remotedocker")


def finish(remote, key):
    """Submit again with the same key, as a user does after a crash, and check that the run is complete."""
    done = remote.submit("--key", key, "work.py", key)
    assert done.code == 0, done
    remote.assert_complete(done.run, key)
    return done


@pytest.mark.parametrize("stage", CLIENT_STAGES)
def test_client_killed_at_stage(remote, stage):
    killed = remote.submit("--key", "k", "work.py", "k", env={"MLW_FAILPOINT": f"{stage}:kill"})
    assert killed.code == -signal.SIGKILL
    shown = remote.ps()
    if stage not in ("connected", "snapshot", "launched-here"):
        assert [(run["status"], run["detail"]) for run in shown] == [("Submitting", "interrupted")]
    done = finish(remote, "k")
    assert [run["run_id"] for run in remote.runs()] == [done.run]


@pytest.mark.parametrize("way", ["resume", "cancel"])
def test_interrupted_submit_is_resumed_or_canceled(remote, way):
    remote.submit("--key", "k", "work.py", "k", env={"MLW_FAILPOINT": "launching:kill"})
    [shown] = remote.ps()
    done = remote.mlw(*(("experiment", "resume") if way == "resume" else ("cancel",)), shown["run_id"])
    assert done.code == 0, done
    if way == "resume":
        remote.assert_complete(shown["run_id"], "k")
    else:
        assert remote.laptop.info(shown["run_id"])["ending"] == "cancelled"
        assert remote.count("start", "k") == 0


@pytest.mark.installed  # leftover clients are found by the command line of the installed program
def test_twenty_kills_on_both_sides_of_connection(laptop, machine):
    """Kill client, supervisor, launcher, agent, and connection, with three submits in parallel.

    `make soak` does 300 per target.
    """
    world = RemoteWorld.attached(laptop, machine(sshd="AcceptEnv MLW_FAILPOINT"), "remote")
    [warm] = kill_harness.execute_order(world, Order("warm"))
    mix = replace(kill_harness_remote.MIX, max_delay=0.7 * warm.seconds)
    kill_harness_remote.run_orders(world, kill_harness.orders(60, kill_harness.SEED, warm.seconds, mix), kills=20)
    print("hit", sum(attempt.hit for attempt in world.attempts), "of", len(world.attempts))
    assert sum(attempt.hit for attempt in world.attempts) >= 20
    kill_harness.assert_no_violations(world)
    run = world.run_of("warm")
    with open(world.user.folder(run) / "log", "ab") as log:  # a difference that check_target must detect
        log.write(b"more")
    assert world.check_target([]) and world.check_target(
        [{"run_id": path.name} for path in world.target_folder("").iterdir()]
    )


SUCCEEDED, NEVER, UNKNOWN = "succeeded", "could not start", "exit unknown"
TARGET_STAGE_RESULTS = {
    **dict.fromkeys(("claiming", "launched", "started", "finishing", "finished", "after-start"), SUCCEEDED),
    **dict.fromkeys(("claimed", "accepted", "placed", "prepared", "before-gate", "after-gate"), NEVER),
    "before-exit": UNKNOWN,  # the script has ended, and the only process that had its exit code was killed
}


@pytest.mark.parametrize("stage", [*kill_harness.SUPERVISOR_STAGES, *kill_harness.LAUNCHER_STAGES])
def test_remote_process_killed_at_stage(remote, stage):
    """~/.ssh/environment sets the failpoint for one connection; the next connection recovers the run."""
    environment = remote.host.home / ".ssh" / "environment"
    environment.write_text(f"MLW_FAILPOINT={stage}:kill\n")
    struck = remote.submit("--key", "k", "--detach", "work.py", "k")
    environment.unlink()
    wait_until(lambda: "agent.py" not in str(remote.host.processes()), "the end of the agent with the fail point")
    done = remote.submit("--key", "k", "work.py", "k")
    [record] = remote.runs()
    assert (record["run_id"], record["ending"]) == (done.run, TARGET_STAGE_RESULTS[stage]), (record, struck)
    happened = int(TARGET_STAGE_RESULTS[stage] != NEVER)
    assert (remote.count("start", "k"), remote.count("end", "k")) == (happened, happened)
    assert content(remote.laptop.folder(done.run) / "log") == content(remote.target_folder(done.run) / "log")
    assert not [line for line in remote.host.processes().values() if "work.py" in line]


def test_follower_killed_repeatedly(remote):
    run = remote.detach("work.py", "k", "--ticks")
    remote.await_ticks(run)
    choose = random.Random(kill_harness.SEED)
    for _ in range(12):
        follower = remote.start("logs", "-f", run)
        time.sleep(choose.uniform(0.1, 0.5))
        follower.kill()
        shown = follower.communicate()[0]
        assert content(remote.target_folder(run) / "log").startswith(shown)
        assert content(remote.target_folder(run) / "log").startswith(content(remote.laptop.folder(run) / "log"))
    remote.release()
    followed = remote.mlw("logs", "-f", run)
    assert followed.stdout == content(remote.target_folder(run) / "log")
    remote.assert_complete(run, "k")


MANY = """
import os
for number in range(400):
    open("outputs/%d" % number, "wb").write(os.urandom(1000 + 500 * number))
open("outputs/large", "wb").write(os.urandom(20_000_000))
"""


def test_client_killed_during_output_fetch(remote):
    """Whenever the client is killed, complete files are correct, and the next command resumes the fetch."""
    remote.write("many.py", MANY)
    run = remote.detach("many.py")
    remote.await_end(run)
    local_outputs, remote_outputs = (
        remote.laptop.folder(run) / "work" / "outputs",
        remote.target_folder(run) / "work" / "outputs",
    )
    remote.host.slow("200mbit")
    received, hits, right = 0, 0, set()
    for _ in range(40):
        client = remote.start("logs", "-f", run)
        goal = received + 4_000_000
        wait_until(
            lambda goal=goal, client=client: amount(local_outputs) > goal or client.poll() is not None, "outputs", 60
        )
        hits += client.poll() is None
        client.kill()
        client.communicate()
        for path in local_outputs.rglob("*"):
            if path.is_file() and not path.name.endswith(".part") and version(path) not in right:
                assert digest(path) == digest(remote_outputs / path.name)
                right.add(version(path))
        assert amount(local_outputs) >= received, "what had come was not thrown away"
        received = amount(local_outputs)
        if (remote.laptop.folder(run) / "home.json").exists():
            break
    remote.host.slow(None)
    print("hits", hits)
    assert hits >= 5
    assert remote.mlw("logs", "-f", run).code == 0
    assert remote.assert_outputs_fetched(run) == 401


def version(path):
    """Return a value that changes when the file is written."""
    what = path.stat()
    return path, what.st_ino, what.st_size, what.st_mtime_ns, what.st_ctime_ns


def amount(folder):
    """Return the number of bytes received in complete and partial files."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue  # the file was just renamed
    return total


@pytest.mark.parametrize("stage", ["launching", "launched-here"])
def test_client_of_container_run_killed(contained, stage):
    killed = contained.submit("--key", "k", "work.py", "k", env={"MLW_FAILPOINT": f"{stage}:kill"})
    assert killed.code == -signal.SIGKILL
    finish(contained, "k")
    assert contained.host.engine.containers() == []


def test_container_continues_after_all_mlw_processes_are_killed(contained):
    """Kill client, connection, supervisor, and watcher: the script keeps running, and its ending is known."""
    run = contained.detach("work.py", "k", "--ticks")
    contained.await_ticks(run)
    owner = json.loads((contained.target_folder(run) / "claim" / "owner.json").read_text())
    assert owner["pid"] in contained.host.processes()
    for pid in contained.host.processes():
        contained.host.run("kill", "-9", str(pid), check=False)
    contained.release()
    followed = contained.mlw("logs", "-f", run)
    assert followed.code == 0, followed
    contained.assert_complete(run, "k")
    assert contained.host.engine.containers() == []
    assert os.path.exists(contained.target_folder(run) / "exit.json")
