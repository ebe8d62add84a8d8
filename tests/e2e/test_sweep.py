"""Sweeps: one command, many runs, and the best run."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from tests.e2e.remote_target import RemoteTarget
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
    """Return the children of a sweep in order of creation."""
    done = user.mlw("history", "info", parent, "-o", "json")
    assert done.code == 0, done
    return [user.info(run) for run in json.loads(done.out)["sweep"]["children"]]


def test_sweep_from_command_to_best_child(user):
    root = user.project(train=TRAIN)
    arguments = ("train.py", "--epochs", "2", "--sweep", "lr=0.1,0.01", "depth=2..4", "--metric", "accuracy")
    done = user.mlw("experiment", "submit", "-c", "local", *arguments, cwd=root)
    assert done.code == 0, done
    assert len(re.findall(r"^\d/6 .*Completed", done.out, re.MULTILINE)) == 6
    assert re.search(r"^6/6 lr=0.01 depth=4 Completed accuracy=0.98 demo-", done.out, re.MULTILINE), done
    runs = children(user, done.run)
    assert [run["arguments"] for run in runs] == [
        ["--epochs", "2", "--lr", lr, "--depth", depth] for lr in ("0.1", "0.01") for depth in "234"
    ]
    assert {(run["status"], run["parent_run_id"]) for run in runs} == {("Completed", done.run)}
    [best] = [run for run in runs if run["accuracy"] == 0.99]
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
    return [child["status"] for child in children(user, parent)]


def test_sweep_continues_without_client_and_can_be_followed(user):
    root = user.project(wait=WAIT)
    done = user.mlw("submit", "--detach", "wait.py", "--sweep", "word=wait,a,b", cwd=root)
    assert (done.code, done.out.strip()) == (0, done.run), done
    wait_until(lambda: user.info(done.run)["status"] == "Running", "the first child")
    listed = user.mlw("ps", cwd=root)
    assert listed.out.count("demo-") == 2, listed  # the sweep and its running child
    assert f"2 more runs of sweep {done.run} are waiting to start" in listed.err
    every = json.loads(user.mlw("ps", "-o", "json", cwd=root).out)
    assert sorted(row["status"] for row in every) == ["Queued", "Queued", "Running", "Running"]
    assert states(user, done.run) == ["Running", "Queued", "Queued"]
    assert children(user, done.run)[2]["detail"] == f"waiting for its turn in {done.run}"
    (user.home / "go").touch()
    followed = user.mlw("logs", "-f", done.run, cwd=root)
    assert followed.code == 0, followed
    assert "3/3 word=b Completed" in followed.out
    assert states(user, done.run) == ["Completed"] * 3
    assert observed(user.home) == ["wait", "a", "b"]


def test_cancel_waiting_child_then_sweep(user):
    root = user.project(wait=WAIT)
    done = user.mlw("submit", "--detach", "wait.py", "--sweep", "word=wait,a,b,c", cwd=root)
    wait_until(lambda: observed(user.home) == ["wait"], "the first child")
    last = user.info(done.run)["sweep"]["children"][3]
    result = user.mlw("cancel", last, cwd=root)
    assert (result.code, "Canceled" in result.err) == (0, True), result
    assert states(user, done.run)[3] == "Canceled"
    cancelled = user.mlw("cancel", done.run, cwd=root)
    assert cancelled.code == 0, cancelled
    assert f"run {done.run} has ended: Canceled" in cancelled.err
    assert states(user, done.run) == ["Canceled"] * 4
    assert user.mlw("ps", cwd=root).out == ""
    assert observed(user.home) == ["wait"]


@pytest.mark.parametrize("stage", ["recorded", "launching", "launched-here"])
def test_killed_sweep_submit_is_resumed_or_canceled(user, stage):
    root = user.project(wait=WAIT)
    arguments = ("submit", "--key", "k", "wait.py", "--sweep", "word=a,b")
    killed = user.mlw(*arguments, cwd=root, env={"MLW_FAILPOINT": f"{stage}:kill"})
    assert killed.code == -signal.SIGKILL
    again = user.mlw(*arguments, cwd=root)
    assert again.code == 0, again
    assert states(user, again.run) == ["Completed"] * 2
    assert observed(user.home) == ["a", "b"]
    other = user.mlw("submit", "--key", "k", "wait.py", "--sweep", "word=a,c", cwd=root)
    assert "which has a different --sweep" in other.err


def test_cancel_interrupted_sweep(user):
    root = user.project(wait=WAIT)
    user.mlw("submit", "wait.py", "--sweep", "word=a,b", cwd=root, env={"MLW_FAILPOINT": "launching:kill"})
    [parent] = [row for row in user.runs() if row["sweep"]]
    first = parent["sweep"]["children"][0]
    refused = user.mlw("experiment", "resume", first, cwd=root)
    assert f"run {first} is part of sweep {parent['run_id']}, whose submission was interrupted" in refused.err, refused
    done = user.mlw("cancel", parent["run_id"], cwd=root)
    assert done.code == 0, done
    assert states(user, parent["run_id"]) == ["Canceled"] * 2
    assert observed(user.home) == []


def test_sweep_dry_run_and_invalid_sweeps(user):
    root = user.project(train=TRAIN)
    done = user.mlw("submit", "--dry-run", "train.py", "--sweep", "lr=1,2", "depth=3", cwd=root)
    planned = json.loads(done.out)
    assert [child["name"] for child in planned["children"]] == ["lr=1 depth=3", "lr=2 depth=3"]
    assert planned["children"][1]["command"][1:] == ["train.py", "--lr", "2", "--depth", "3"]
    assert user.runs() == []
    for arguments, message in (
        (["train.py", "--sweep", "lr=0.1..0.5"], "a grid cannot cover the continuous range lr=0.1..0.5"),
        (["--max-runs", "3", "train.py"], "--max-runs requires --sweep"),
        (["train.py", "--sweep", "lr=1,2", "--seed", "3"], "--seed requires --random"),
        (["train.py", "--sweep", "lr=1,2", "--parallel", "0"], "--parallel"),
        (["--sweep", "train.py"], "has no values"),
    ):
        wrong = user.mlw("submit", *arguments, cwd=root)
        assert (wrong.code, message in wrong.err) == (2, True), wrong
    assert user.runs() == []


def test_sweep_of_command_with_json_output(user):
    root = user.project(train=TRAIN)
    arguments = ("--sweep", "lr=0.2,0.1", "--", "python3", "train.py", "--depth", "3", "--lr", "{lr}")
    done = user.mlw("submit", "-o", "json", *arguments, cwd=root)
    assert done.code == 0, done
    result = json.loads(done.out)
    assert [child["arguments"] for child in result["children"]] == [
        ["train.py", "--depth", "3", "--lr", lr] for lr in ("0.2", "0.1")
    ]
    assert result["best_run_id"] == result["children"][1]["run_id"]
    untouched = user.mlw("submit", "--", "python3", "-c", "import sys; print(sys.argv[1:])", "--sweep", "a=1", cwd=root)
    assert untouched.out == "['--sweep', 'a=1']\n"


def test_children_queue_for_gpu(user, tmp_path):
    gpus = FakeGpus(tmp_path)
    gpus.add(f"GPU-{os.urandom(6).hex()}", memory=(16 << 30, 0), name="NVIDIA H200", utilisation=0)
    user.env.update(gpus.env_nvml_only, PATH=f"{gpus.bin}:{user.env['PATH']}")
    root = user.project(wait=WAIT)
    arguments = ("--detach", "--gpus", "1", "--env", f"MLW_FAKE_GPUS={user.env['MLW_FAKE_GPUS']}", "wait.py")
    first = user.mlw("submit", *arguments, "--word", "wait", cwd=root)
    wait_until(lambda: observed(user.home) == ["wait"], "the run that holds it")
    done = user.mlw("submit", *arguments, "--sweep", "word=a,b", cwd=root)
    assert done.code == 0, done
    expected = [("Queued", f"GPU 0 held by run {first.run}"), ("Queued", f"waiting for its turn in {done.run}")]
    wait_until(
        lambda: [(child["status"], child["detail"]) for child in children(user, done.run)] == expected, "both wait"
    )
    (user.home / "go").touch()
    assert user.mlw("logs", "-f", done.run, cwd=root).code == 0
    assert observed(user.home) == ["wait", "a", "b"]
    assert [child["gpu"]["got"]["held"] for child in children(user, done.run)] == [True, True]


def test_sweep_in_local_containers(laptop, engine):
    laptop.use_engine(engine)
    root = laptop.project("demo", train=TRAIN)
    compute = root / "aml_config" / "docker.compute"
    lines = [line for line in compute.read_text().splitlines() if not line.startswith("baseDockerImage:")]
    compute.write_text("\n".join([*lines, f"baseDockerImage: {engine.image}", "userManagedEnvironment: true", ""]))
    arguments = ("train.py", "--sweep", "lr=0.1,0.2", "depth=3", "--parallel", "2")
    done = laptop.mlw("submit", "-c", "docker", *arguments, cwd=root)
    assert done.code == 0, done
    assert [child["accuracy"] for child in children(laptop, done.run)] == [0.9, 0.8]
    assert "accuracy 0.9 (highest)" in done.err
    assert engine.containers() == []


# -- remote targets ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["remote", "remotedocker"])
def remote(laptop, machine, request):
    far = RemoteTarget(laptop, machine(docker="yes" if request.param == "remotedocker" else "no"), request.param)
    far.write("wait.py", WAIT)
    return far


def test_sweep_results_are_fetched_after_lost_connection(remote):
    run = remote.detach("wait.py", "--sweep", "word=wait1,wait2,a,b,c", "--parallel", "2")
    wait_until(lambda: sorted(observed(remote.home)) == ["wait1", "wait2"], "the first children")
    wait_until(
        lambda: sorted(child["status"] for child in remote.ps()) == ["Queued"] * 3 + ["Running"] * 3, "their places"
    )
    remote.host.cut()
    remote.release()
    remote.await_end(run)
    assert sorted(observed(remote.home)) == ["a", "b", "c", "wait1", "wait2"]
    remote.host.heal()
    done = remote.mlw("logs", "-f", run)
    assert done.code == 0, done
    runs = children(remote.laptop, run)
    assert [(child["status"], child["contact"]) for child in runs] == [("Completed", "in contact")] * 5
    for child, word in zip(runs, ("wait1", "wait2", "a", "b", "c"), strict=True):
        home = remote.laptop.folder(child["run_id"])
        assert (home / "log").read_text() == f"done {word}\n"
        assert (home / "work/outputs/result.txt").read_text() == word * 100
    assert (remote.laptop.folder(run) / "log").read_bytes() == done.stdout
    assert remote.ps() == []


def test_follow_queued_child_on_remote_machine(remote):
    run = remote.detach("wait.py", "--sweep", "word=wait,a")
    wait_until(lambda: observed(remote.home) == ["wait"], "the first child")
    last = remote.laptop.info(run)["sweep"]["children"][1]
    process = remote.start("logs", "-f", last)
    line = next(line for line in iter(process.stderr.readline, b"") if line.startswith(b"queued"))
    assert line.decode() == f"queued: waiting for its turn in {run}\n"
    remote.release()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"done a\n"), err
    assert remote.mlw("cancel", run).code == 0


SCORES = """
import sys
from mlworkbench import log, set_tags
value = float(sys.argv[-1])
for name in ("val_logloss", "width"):
    log(name, value)
if len(sys.argv) > 3:
    set_tags({"goal.width": sys.argv[1]})
"""


def test_best_run_is_never_the_worst(user):
    """A usual name or a tag determines the direction; otherwise, no run is the best until the user names a goal."""
    root = user.project(train=SCORES)

    def sweep(metric, *arguments):
        done = user.mlw(
            *("submit", "-c", "local", "train.py", *arguments, "--sweep", "x=0.5,0.02", "--metric", metric), cwd=root
        )
        assert done.code == 0, done
        return done

    def lowest(done):
        [run] = [run["run_id"] for run in children(user, done.run) if run["width"] == 0.02]
        return run

    usual = sweep("val_logloss")
    assert f"best: {lowest(usual)}" in usual.err and "val_logloss 0.02 (lowest)" in usual.err, usual
    unknown = sweep("width")
    assert "best:" not in unknown.err and "not known whether higher or lower values of width" in unknown.err, unknown
    tagged = sweep("width", "MINIMIZE")
    assert f"best: {lowest(tagged)}" in tagged.err and "width 0.02 (lowest)" in tagged.err, tagged

    ranking = ("history", "best", "--metric", "width", "--parent", unknown.run, "-L", "1")
    best = user.mlw(*ranking, cwd=root)
    assert best.code == 2 and "--goal max or --goal min" in best.err and best.out == "", best
    chosen = user.mlw(*ranking, "--goal", "min", cwd=root)
    assert chosen.code == 0 and lowest(unknown) in chosen.out, chosen

    file = root / "aml_config" / "local.runconfig"
    file.write_text(file.read_text() + "MetricGoals:\n  width: min\n")
    configured = sweep("width")
    assert f"best: {lowest(configured)}" in configured.err and "width 0.02 (lowest)" in configured.err, configured

    assert_project_goal_ranks(user, root, unknown.run, lowest(unknown), ranking)


def assert_project_goal_ranks(user, root, earlier, winner, ranking):
    """A goal of the project also applies to runs from the time before, wherever the best run is shown."""
    ranked = user.mlw(*ranking, cwd=root)
    assert ranked.code == 0 and winner in ranked.out and "ranked by lowest width" in ranked.err, ranked
    shown = user.mlw("show", earlier, cwd=root)
    assert any(winner in line and line.rstrip().endswith("best") for line in shown.out.splitlines()), shown
    for scope in ((), ("--all",)):
        listed = user.mlw("history", "list", *scope, "--group", "script", "--parent", earlier, "-o", "json", cwd=root)
        assert json.loads(listed.out)[0]["metrics"]["width"]["best_run"] == winner, listed
