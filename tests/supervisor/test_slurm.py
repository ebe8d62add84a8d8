"""Runs as jobs of a real Slurm cluster: start, status, endings, attempts, and cancel, without a client."""

from __future__ import annotations

import json

import pytest

from mlworkbench.testing.waiting import wait_until
from tests.machines.slurm import LONG

from .slurm_target import SlurmTarget, read

SECRET = "canary-canary"


@pytest.fixture
def target(slurm) -> SlurmTarget:
    return SlurmTarget(slurm)


# -- start -----------------------------------------------------------------------------------------------------------


def test_run_inherits_the_environment_of_its_job(target):
    script = "import os; print(*map(os.environ.get, ('TOKEN', 'FROM_SETUP', 'CUDA_VISIBLE_DEVICES', 'MLW_SUPERVISOR')))"
    setup = ["for word in of setup; do", "  FROM_SETUP=$FROM_SETUP$word", "done", "export FROM_SETUP"]
    run = target.add("r", script, gpus=2, gpu_model="h200", setup=setup, time=60, spec={"secrets": ["TOKEN"]})
    assert target.start("r", message={"secrets": {"TOKEN": SECRET}})["ok"]
    assert target.end(run) == ("succeeded", None)
    assert read(run / "log").split() == [SECRET, "ofsetup", "0,1", "None"]
    job = target.slurm.job(target.job(run))
    assert (job["JobName"], job["TimeLimit"], job["Requeue"]) == ("r", "00:01:00", "0")
    (run / "log").unlink()
    assert target.secrets_left(SECRET.encode()) == []
    accepted = target.wait_for_event(run, "accepted")
    assert (accepted["job"], accepted["restart"]) == (target.job(run), 0)
    assert target.status(run) == {"state": "ended", "job": target.job(run)}
    assert target.call("adopt", "r") == {"ok": True, "state": "finished"}


def test_rejected_job_fails_the_start(target):
    run = target.add("r", partition="nope")
    failure = target.start("r")["failure"]
    assert failure["code"] == "slurm-refused" and "invalid partition specified: nope" in failure["message"]
    assert not (run / "starter.json").exists() and not (run / "slurm.json").exists()


@pytest.mark.parametrize("stage", ["job-intended", "job-submitted", "job-recorded"])
def test_lost_answer_of_sbatch_makes_no_second_job(target, stage):
    """The process that submits is killed before sbatch, after it, and after it has recorded the job."""
    run = target.add(stage, "print('once')")
    assert not target.start(stage, env={"MLW_FAILPOINT": f"{stage}:kill"})["ok"]
    if stage == "job-intended":  # a minute ago, so that no job can appear anymore
        record = json.loads((run / "slurm.json").read_text())
        (run / "slurm.json").write_text(json.dumps({**record, "time": record["time"] - 60}))
    assert target.start(stage, "n2")["ok"]
    assert target.end(run)[0] == "succeeded"
    names = target.slurm.admin("squeue", "-h", "-t", "all", "-o", "%A %j").stdout.splitlines()
    assert [name for name in names if name.endswith(f" {stage}")] == [f"{target.job(run)} {stage}"]
    assert read(run / "log") == "once\n"


# -- endings ---------------------------------------------------------------------------------------------------------


def test_endings_are_told_apart(target):
    slurm = target.slurm
    runs = {name: target.submit(name) for name in ("ours", "user", "root")}
    failed = target.submit("failed", "raise SystemExit(3)")
    memory = target.submit("memory", "bytearray(400 << 20)", memory="100M")
    setup = target.submit("setup", setup=["no-such-program"])
    target.wait_running(*runs.values())
    statuses = target.statuses(*runs)
    assert {status["state"] for status in statuses.values()} == {"running"}
    assert all(status["job"] and status["nodes"] for status in statuses.values())
    target.call("cancel", "ours", "me")
    slurm.run("scancel", target.job(runs["user"]))
    slurm.admin("scancel", target.job(runs["root"]))
    assert target.end(runs["ours"]) == ("cancelled", "canceled by me")
    assert target.end(runs["user"]) == ("cancelled", "canceled in Slurm by ada")
    assert target.end(runs["root"]) == ("cancelled", "canceled in Slurm by root")
    assert target.end(failed)[0] == "failed"
    assert target.end(memory) == ("out of memory", "the kernel killed the process because memory ran out")
    target.adopt(setup)
    ending, cause = target.end(setup)
    assert ending == "could not start" and cause is not None
    assert cause.endswith("; the job failed: setUp failed: no-such-program")


def test_waiting_jobs_are_not_endings(target):
    held = target.submit("held", options=["--hold"])
    never = target.submit("never", time=5 * 86400)
    full = target.submit("full", options=["--begin=now+1hour"])
    statuses = target.statuses("held", "never", "full")
    assert {status["state"] for status in statuses.values()} == {"queued"}
    assert (statuses["held"]["reason"], statuses["full"]["reason"]) == ("JobHeldUser", "BeginTime")
    assert statuses["never"]["reason"] in ("PartitionTimeLimit", "PartitionConfig")
    assert statuses["held"]["hint"] == f"it is held: release it with 'scontrol release {target.job(held)}'"
    assert "it never starts" in statuses["never"]["hint"] and "hint" not in statuses["full"]
    assert statuses["full"]["estimated_start"] > 0
    assert target.call("adopt", "held") == {"ok": True, "state": "scheduled", "standing": statuses["held"]}
    assert target.call("cancel", "held", "me")["ok"]
    assert target.end(held) == ("cancelled", "canceled before it started")
    target.slurm.admin("scancel", target.job(never))
    target.adopt(never)
    assert target.end(never) == ("cancelled", "canceled in Slurm by root")
    assert not (never / "log").exists() and target.status(full)["state"] == "queued"


def test_secrets_of_a_canceled_job_are_removed(target):
    run = target.add("r", options=["--hold"], spec={"secrets": ["TOKEN"]})
    target.start("r", message={"secrets": {"TOKEN": SECRET}})
    assert target.secrets_left(SECRET.encode()) == ["runs/r/secrets.json"]
    assert (run / "secrets.json").stat().st_mode & 0o777 == 0o600
    target.call("cancel", "r", "me")
    assert target.end(run)[0] == "cancelled"
    assert target.secrets_left(SECRET.encode()) == []


def test_time_limit(target):
    """The script has its grace period before the limit."""
    script = "import signal, time\nsignal.signal(15, lambda *_: exit(print('saved', flush=True)))\n"
    run = target.submit("r", script + "print('up', flush=True); time.sleep(1000)", time=60)
    target.wait_running(run)
    target.slurm.expire(target.job(run))
    assert target.end(run) == ("timeout", "stopped at the job's time limit of 1 min")
    assert read(run / "log").split() == ["up", "saved"]


# -- attempts --------------------------------------------------------------------------------------------------------


def test_interrupted_jobs_continue_as_new_attempts(target):
    """Requeued by an administrator, preempted, and after the failure of a node."""
    slurm = target.slurm
    requeued = target.submit("requeued", options=["--nodelist=n1"])
    preempted = target.submit("preempted", qos="low", options=["--nodelist=n2", "--exclusive"])
    failed = target.submit("failed", options=["--nodelist=n3"])
    runs = (requeued, preempted, failed)
    target.wait_running(*runs)
    slurm.admin("scontrol", "requeue", target.job(requeued))
    target.submit("high", "print('up')", qos="high", options=["--nodelist=n2", "--exclusive"])
    slurm.cut_off("n3")
    slurm.admin("scontrol", "update", f"JobId={target.job(failed)}", "ReqNodeList=n1")
    for run in runs:
        wait_until(lambda run=run: read(run / "log").count("up") == 2, LONG)
    assert target.attempts(requeued) == [(1, "requeued")]
    assert target.attempts(preempted) == [(1, "preempted")]
    assert target.attempts(failed) == [(1, "node failure")]
    for run in runs:
        target.call("cancel", run.name, "me", "0")
        assert target.end(run) == ("cancelled", "canceled by me")
        assert (run / "attempts" / "2" / "claim" / "owner.json").exists()
        assert json.loads((run / "attempts" / "2" / "claim" / "owner.json").read_text())["restart"] == 1
