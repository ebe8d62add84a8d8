"""Sweeps as a user sees them: one command, many runs, the best one shown."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from tests.e2e.elsewhere import Away
from tests.machines.network import wait_until
from tests.machines.nvml import FakeGpus

TRAIN = """
import argparse
from mlworkbench import log
words = argparse.ArgumentParser()
words.add_argument("--lr", type=float)
words.add_argument("--depth", type=int)
words.add_argument("--epochs", type=int, default=1)
asked = words.parse_args()
for epoch in range(asked.epochs):
    log("accuracy", 1 - asked.lr - (asked.depth - 3) ** 2 / 100)
print("trained", asked.lr, asked.depth, asked.epochs)
open("outputs/model.txt", "w").write(str(asked.depth))
"""


def children(user, parent):
    """The children of a sweep, in the order of their making."""
    done = user.mlw("history", "info", parent, "-o", "json")
    assert done.code == 0, done
    return [user.info(one) for one in json.loads(done.out)["sweep"]["children"]]


def test_a_sweep_from_the_command_to_the_best_child(user):
    root = user.project(train=TRAIN)
    words = ("train.py", "--epochs", "2", "--sweep", "lr=0.1,0.01", "depth=2..4", "--metric", "accuracy")
    done = user.mlw("experiment", "submit", "-c", "local", *words, cwd=root)
    assert done.code == 0, done
    assert len(re.findall(r"^\d/6 .*Completed", done.out, re.MULTILINE)) == 6
    assert re.search(r"^6/6 lr=0.01 depth=4 Completed accuracy=0.98 demo-", done.out, re.MULTILINE), done
    found = children(user, done.run)
    assert [one["arguments"] for one in found] == [
        ["--epochs", "2", "--lr", lr, "--depth", depth] for lr in ("0.1", "0.01") for depth in "234"
    ]
    assert {(one["status"], one["parent_run_id"]) for one in found} == {("Completed", done.run)}
    [best] = [one for one in found if one["accuracy"] == 0.99]
    assert f"best: {best['run_id']}" in done.err, done
    assert "accuracy 0.99" in done.err
    assert user.info(done.run)["status"] == "Completed"
    listed = user.mlw("history", "list", "-o", "json", "--query", "[].run_id", cwd=root)
    assert done.run in listed.out


WAIT = """
import os, sys, time
word = sys.argv[sys.argv.index("--word") + 1]
home = os.path.expanduser("~")
file = os.open(os.path.join(home, "observed"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(file, (word + "\\n").encode())
while word.startswith("wait") and not os.path.exists(os.path.join(home, "go")):
    time.sleep(0.02)
print("done", word)
open("outputs/result.txt", "w").write(word * 100)
"""


def observed(home):
    path = home / "observed"
    return path.read_text().split() if path.exists() else []


def states(user, parent):
    return [one["status"] for one in children(user, parent)]


def test_a_sweep_goes_on_without_a_client_and_is_found_again(user):
    root = user.project(wait=WAIT)
    done = user.mlw("submit", "--detach", "wait.py", "--sweep", "word=wait,a,b", cwd=root)
    assert (done.code, done.out.strip()) == (0, done.run), done
    wait_until(lambda: user.info(done.run)["status"] == "Running", "the first child")
    listed = user.mlw("ps", cwd=root)
    assert listed.out.count("demo-") == 2, listed  # the sweep and the child that runs
    assert f"2 more runs of sweep {done.run} are waiting to start" in listed.err
    every = json.loads(user.mlw("ps", "-o", "json", cwd=root).out)
    assert sorted(one["status"] for one in every) == ["Queued", "Queued", "Running", "Running"]
    assert states(user, done.run) == ["Running", "Queued", "Queued"]
    assert children(user, done.run)[2]["detail"] == f"waiting for its turn in {done.run}"
    (user.home / "go").touch()
    followed = user.mlw("logs", "-f", done.run, cwd=root)
    assert followed.code == 0, followed
    assert "3/3 word=b Completed" in followed.out
    assert states(user, done.run) == ["Completed"] * 3
    assert observed(user.home) == ["wait", "a", "b"]


def test_cancel_of_a_child_that_waits_and_then_of_all(user):
    root = user.project(wait=WAIT)
    done = user.mlw("submit", "--detach", "wait.py", "--sweep", "word=wait,a,b,c", cwd=root)
    wait_until(lambda: observed(user.home) == ["wait"], "the first child")
    last = user.info(done.run)["sweep"]["children"][3]
    one = user.mlw("cancel", last, cwd=root)
    assert (one.code, "Canceled" in one.err) == (0, True), one
    assert states(user, done.run)[3] == "Canceled"
    cancelled = user.mlw("cancel", done.run, cwd=root)
    assert cancelled.code == 0, cancelled
    assert f"run {done.run} has ended: Canceled" in cancelled.err
    assert states(user, done.run) == ["Canceled"] * 4
    assert user.mlw("ps", cwd=root).out == ""
    assert observed(user.home) == ["wait"]


@pytest.mark.parametrize("stage", ["recorded", "launching", "launched-here"])
def test_a_submit_that_was_killed_is_finished_or_given_up(user, stage):
    root = user.project(wait=WAIT)
    words = ("submit", "--key", "k", "wait.py", "--sweep", "word=a,b")
    killed = user.mlw(*words, cwd=root, env={"MLW_FAILPOINT": f"{stage}:kill"})
    assert killed.code == -signal.SIGKILL
    again = user.mlw(*words, cwd=root)
    assert again.code == 0, again
    assert states(user, again.run) == ["Completed"] * 2
    assert observed(user.home) == ["a", "b"]
    other = user.mlw("submit", "--key", "k", "wait.py", "--sweep", "word=a,c", cwd=root)
    assert "which has a different --sweep" in other.err


def test_an_interrupted_sweep_is_given_up(user):
    root = user.project(wait=WAIT)
    user.mlw("submit", "wait.py", "--sweep", "word=a,b", cwd=root, env={"MLW_FAILPOINT": "launching:kill"})
    [parent] = [one for one in user.runs() if one["sweep"]]
    first = parent["sweep"]["children"][0]
    refused = user.mlw("experiment", "resume", first, cwd=root)
    assert f"run {first} is part of sweep {parent['run_id']}, whose submission was interrupted" in refused.err, refused
    done = user.mlw("cancel", parent["run_id"], cwd=root)
    assert done.code == 0, done
    assert states(user, parent["run_id"]) == ["Canceled"] * 2
    assert observed(user.home) == []


def test_what_is_planned_and_what_makes_no_sense(user):
    root = user.project(train=TRAIN)
    done = user.mlw("submit", "--dry-run", "train.py", "--sweep", "lr=1,2", "depth=3", cwd=root)
    planned = json.loads(done.out)
    assert [one["name"] for one in planned["children"]] == ["lr=1 depth=3", "lr=2 depth=3"]
    assert planned["children"][1]["command"][1:] == ["train.py", "--lr", "2", "--depth", "3"]
    assert user.runs() == []
    for words, said in (
        (["train.py", "--sweep", "lr=0.1..0.5"], "a grid cannot cover the continuous range lr=0.1..0.5"),
        (["--max-runs", "3", "train.py"], "--max-runs requires --sweep"),
        (["train.py", "--sweep", "lr=1,2", "--seed", "3"], "--seed requires --random"),
        (["train.py", "--sweep", "lr=1,2", "--parallel", "0"], "--parallel"),
        (["--sweep", "train.py"], "has no values"),
    ):
        wrong = user.mlw("submit", *words, cwd=root)
        assert (wrong.code, said in wrong.err) == (2, True), wrong
    assert user.runs() == []


def test_a_command_its_words_and_the_result_as_json(user):
    root = user.project(train=TRAIN)
    words = ("--sweep", "lr=0.2,0.1", "--", "python3", "train.py", "--depth", "3", "--lr", "{lr}")
    done = user.mlw("submit", "-o", "json", *words, cwd=root)
    assert done.code == 0, done
    found = json.loads(done.out)
    assert [one["arguments"] for one in found["children"]] == [
        ["train.py", "--depth", "3", "--lr", lr] for lr in ("0.2", "0.1")
    ]
    assert found["best_run_id"] == found["children"][1]["run_id"]
    untouched = user.mlw("submit", "--", "python3", "-c", "import sys; print(sys.argv[1:])", "--sweep", "a=1", cwd=root)
    assert untouched.out == "['--sweep', 'a=1']\n"


def test_children_queue_for_the_gpu(user, tmp_path):
    gpus = FakeGpus(tmp_path)
    gpus.add(f"GPU-{os.urandom(6).hex()}", memory=(16 << 30, 0), name="NVIDIA H200", utilisation=0)
    user.env.update(gpus.env_nvml_only, PATH=f"{gpus.bin}:{user.env['PATH']}")
    root = user.project(wait=WAIT)
    words = ("--detach", "--gpus", "1", "--env", f"MLW_FAKE_GPUS={user.env['MLW_FAKE_GPUS']}", "wait.py")
    first = user.mlw("submit", *words, "--word", "wait", cwd=root)
    wait_until(lambda: observed(user.home) == ["wait"], "the run that holds it")
    done = user.mlw("submit", *words, "--sweep", "word=a,b", cwd=root)
    assert done.code == 0, done
    wait_until(lambda: states(user, done.run) == ["Queued", "Queued"], "both wait")
    details = [one["detail"] for one in children(user, done.run)]
    assert details == [f"GPU 0 held by run {first.run}", f"waiting for its turn in {done.run}"]
    (user.home / "go").touch()
    assert user.mlw("logs", "-f", done.run, cwd=root).code == 0
    assert observed(user.home) == ["wait", "a", "b"]
    assert [one["gpu"]["got"]["held"] for one in children(user, done.run)] == [True, True]


def test_in_containers_here(laptop, engine):
    laptop.uses(engine)
    root = laptop.project("demo", train=TRAIN)
    compute = root / "aml_config" / "docker.compute"
    lines = [line for line in compute.read_text().splitlines() if not line.startswith("baseDockerImage:")]
    compute.write_text("\n".join([*lines, f"baseDockerImage: {engine.image}", "userManagedEnvironment: true", ""]))
    words = ("train.py", "--sweep", "lr=0.1,0.2", "depth=3", "--parallel", "2")
    done = laptop.mlw("submit", "-c", "docker", *words, cwd=root)
    assert done.code == 0, done
    assert [one["accuracy"] for one in children(laptop, done.run)] == [0.9, 0.8]
    assert "accuracy 0.9 (highest)" in done.err
    assert engine.containers() == []


# -- elsewhere --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["remote", "remotedocker"])
def away(laptop, machine, request):
    far = Away(laptop, machine(docker="yes" if request.param == "remotedocker" else "no"), request.param)
    far.write("wait.py", WAIT)
    return far


def test_contact_is_lost_in_the_middle_and_all_comes_home(away):
    run = away.detach("wait.py", "--sweep", "word=wait1,wait2,a,b,c", "--parallel", "2")
    wait_until(lambda: sorted(observed(away.home)) == ["wait1", "wait2"], "the first children")
    wait_until(lambda: sorted(one["status"] for one in away.ps()) == ["Queued"] * 3 + ["Running"] * 3, "their places")
    away.host.cut()
    away.let_go()
    away.await_end(run)
    assert sorted(observed(away.home)) == ["a", "b", "c", "wait1", "wait2"]
    away.host.heal()
    done = away.mlw("logs", "-f", run)
    assert done.code == 0, done
    found = children(away.laptop, run)
    assert [(one["status"], one["contact"]) for one in found] == [("Completed", "in contact")] * 5
    for one, word in zip(found, ("wait1", "wait2", "a", "b", "c"), strict=True):
        home = away.laptop.folder(one["run_id"])
        assert (home / "log").read_text() == f"done {word}\n"
        assert (home / "work/outputs/result.txt").read_text() == word * 100
    assert (away.laptop.folder(run) / "log").read_bytes() == done.stdout
    assert away.ps() == []


def test_a_child_elsewhere_is_followed_from_its_place_in_the_queue(away):
    run = away.detach("wait.py", "--sweep", "word=wait,a")
    wait_until(lambda: observed(away.home) == ["wait"], "the first child")
    last = away.laptop.info(run)["sweep"]["children"][1]
    process = away.start("logs", "-f", last)
    line = next(line for line in iter(process.stderr.readline, b"") if line.startswith(b"queued"))
    assert line.decode() == f"queued: waiting for its turn in {run}\n"
    away.let_go()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"done a\n"), err
    assert away.mlw("cancel", run).code == 0
