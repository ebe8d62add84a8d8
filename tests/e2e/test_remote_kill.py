"""kill -9 on both sides of the wire: each run happens once, and comes home whole (N1–N3; P2, P3; F01–F10, F40)."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import replace

import pytest

from tests.e2e import killing, killing_elsewhere
from tests.e2e.elsewhere import content, digest
from tests.e2e.killing import Order
from tests.e2e.killing_elsewhere import AwayWorld
from tests.machines.network import wait_until

# As test_kill has them, and one that only connections have.
CLIENT_STAGES = ("connected", *killing.CLIENT_STAGES)


@pytest.fixture
def away(shared_target):
    return shared_target(sshd="PermitUserEnvironment yes")


@pytest.fixture
def contained(shared_target):
    return shared_target("remotedocker")


def finish(away, key):
    """What a user does after a crash: the same command again, until it has been through."""
    done = away.submit("--key", key, "work.py", key)
    assert done.code == 0, done
    away.must_be_whole(done.run, key)
    return done


@pytest.mark.parametrize("stage", CLIENT_STAGES)
def test_client_killed_at_a_stage(away, stage):
    killed = away.submit("--key", "k", "work.py", "k", env={"MLW_FAILPOINT": f"{stage}:kill"})
    assert killed.code == -signal.SIGKILL
    shown = away.ps()
    if stage not in ("connected", "snapshot", "launched-here"):
        assert [(one["status"], one["detail"]) for one in shown] == [("Submitting", "interrupted")]
    done = finish(away, "k")
    assert [one["run_id"] for one in away.runs()] == [done.run]


@pytest.mark.parametrize("way", ["resume", "cancel"])
def test_an_interrupted_submit_is_finished_or_given_up(away, way):
    away.submit("--key", "k", "work.py", "k", env={"MLW_FAILPOINT": "launching:kill"})
    [shown] = away.ps()
    done = away.mlw(*(("experiment", "resume") if way == "resume" else ("cancel",)), shown["run_id"])
    assert done.code == 0, done
    if way == "resume":
        away.must_be_whole(shown["run_id"], "k")
    else:
        assert away.laptop.info(shown["run_id"])["ending"] == "cancelled"
        assert away.count("start", "k") == 0


@pytest.mark.installed  # as in test_kill
def test_twenty_kills_on_both_sides_of_the_connection(laptop, machine):
    """Client, supervisor, launcher, agent and connection, three submits at once. `make soak` has 300 per target."""
    world = AwayWorld.attached(laptop, machine(sshd="AcceptEnv MLW_FAILPOINT"), "remote")
    [warm] = killing.carry_out(world, Order("warm"))
    mix = replace(killing_elsewhere.MIX, reach=0.7 * warm.seconds)
    killing_elsewhere.in_turns(world, killing.orders(60, killing.SEED, warm.seconds, mix), kills=20)
    print("hit", sum(one.hit for one in world.attempts), "of", len(world.attempts))
    assert sum(one.hit for one in world.attempts) >= 20
    killing.must_hold(world)
    run = world.run_of("warm")
    with open(world.user.folder(run) / "log", "ab") as log:  # and the check of the target notices
        log.write(b"more")
    assert world.check_target([]) and world.check_target([{"run_id": path.name} for path in world.there("").iterdir()])


SUCCEEDED, NEVER, UNKNOWN = "succeeded", "could not start", "exit unknown"
FAR = {
    **dict.fromkeys(("claiming", "launched", "started", "finishing", "finished", "after-start"), SUCCEEDED),
    **dict.fromkeys(("claimed", "accepted", "placed", "prepared", "before-gate", "after-gate"), NEVER),
    "before-exit": UNKNOWN,  # the script has ended, and the only process that knew how is dead
}


@pytest.mark.parametrize("stage", [*killing.SUPERVISOR_STAGES, *killing.LAUNCHER_STAGES])
def test_the_far_end_is_killed_at_a_stage(away, stage):
    """The nemesis rides in through sshd's environment, for one connection; the next looks after what is left."""
    environment = away.host.home / ".ssh" / "environment"
    environment.write_text(f"MLW_FAILPOINT={stage}:kill\n")
    struck = away.submit("--key", "k", "--detach", "work.py", "k")
    environment.unlink()
    wait_until(lambda: "agent.py" not in str(away.host.processes()), "the end of the agent with the fail point")
    done = away.submit("--key", "k", "work.py", "k")
    [record] = away.runs()
    assert (record["run_id"], record["ending"]) == (done.run, FAR[stage]), (record, struck)
    happened = int(FAR[stage] != NEVER)
    assert (away.count("start", "k"), away.count("end", "k")) == (happened, happened)
    assert content(away.laptop.folder(done.run) / "log") == content(away.there(done.run) / "log")
    assert not [line for line in away.host.processes().values() if "work.py" in line]


def test_follower_killed_again_and_again(away):
    run = away.detach("work.py", "k", "--ticks")
    away.await_ticks(run)
    choose = random.Random(killing.SEED)
    for _ in range(12):
        follower = away.start("logs", "-f", run)
        time.sleep(choose.uniform(0.1, 0.5))
        follower.kill()
        shown = follower.communicate()[0]
        assert content(away.there(run) / "log").startswith(shown)
        assert content(away.there(run) / "log").startswith(content(away.laptop.folder(run) / "log"))
    away.let_go()
    followed = away.mlw("logs", "-f", run)
    assert followed.stdout == content(away.there(run) / "log")
    away.must_be_whole(run, "k")


MANY = """
import os
for number in range(400):
    open("outputs/%d" % number, "wb").write(os.urandom(1000 + 500 * number))
open("outputs/large", "wb").write(os.urandom(20_000_000))
"""


def test_client_killed_while_outputs_come_home(away):
    """Whenever it dies: what has its name is right, and the next command goes on instead of beginning anew."""
    away.write("many.py", MANY)
    run = away.detach("many.py")
    away.await_end(run)
    here, there = away.laptop.folder(run) / "work" / "outputs", away.there(run) / "work" / "outputs"
    away.host.slow("200mbit")
    seen, hits, right = 0, 0, set()
    for _ in range(40):
        client = away.start("logs", "-f", run)
        goal = seen + 4_000_000
        wait_until(lambda goal=goal, client=client: amount(here) > goal or client.poll() is not None, "outputs", 60)
        hits += client.poll() is None
        client.kill()
        client.communicate()
        for path in here.rglob("*"):
            if path.is_file() and not path.name.endswith(".part") and version(path) not in right:
                assert digest(path) == digest(there / path.name)
                right.add(version(path))
        assert amount(here) >= seen, "what had come was not thrown away"
        seen = amount(here)
        if (away.laptop.folder(run) / "home.json").exists():
            break
    away.host.slow(None)
    print("hits", hits)
    assert hits >= 5
    assert away.mlw("logs", "-f", run).code == 0
    assert away.must_have_outputs(run) == 401


def version(path):
    """Another value if the file was written since."""
    what = path.stat()
    return path, what.st_ino, what.st_size, what.st_mtime_ns, what.st_ctime_ns


def amount(folder):
    """Bytes that have come, in finished files and begun ones."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue  # it got its name just now
    return total


@pytest.mark.parametrize("stage", ["launching", "launched-here"])
def test_client_of_a_container_killed(contained, stage):
    killed = contained.submit("--key", "k", "work.py", "k", env={"MLW_FAILPOINT": f"{stage}:kill"})
    assert killed.code == -signal.SIGKILL
    finish(contained, "k")
    assert contained.host.engine.containers() == []


def test_everything_of_ours_is_killed_and_the_container_goes_on(contained):
    """Client, connection, supervisor and watcher: the script does not notice, and its ending is known."""
    run = contained.detach("work.py", "k", "--ticks")
    contained.await_ticks(run)
    owner = json.loads((contained.there(run) / "claim" / "owner.json").read_text())
    assert owner["pid"] in contained.host.processes()
    for pid in contained.host.processes():
        contained.host.run("kill", "-9", str(pid), check=False)
    contained.let_go()
    followed = contained.mlw("logs", "-f", run)
    assert followed.code == 0, followed
    contained.must_be_whole(run, "k")
    assert contained.host.engine.containers() == []
    assert os.path.exists(contained.there(run) / "exit.json")
