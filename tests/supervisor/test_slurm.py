"""Runs as jobs of a real Slurm cluster: start, status, endings, attempts, and cancel, without a client."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from mlworkbench.testing.waiting import wait_until
from tests.machines.slurm import LONG

from .slurm_target import SlurmTarget, read

SECRET = "canary-canary"
SAVING = """
import signal, time
signal.signal(15, lambda *_: exit(print('saved', flush=True)))
print('up', flush=True)
time.sleep(1000)
"""


@pytest.fixture
def target(slurm) -> SlurmTarget:
    return SlurmTarget(slurm)


def scripts(target: SlurmTarget, node: str) -> list[str]:
    """Return the command lines of scripts that are running on a node."""
    return [args for args in target.slurm.nodes[node].processes("ada").values() if "main.py" in args]


def silent(statuses: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]] | None:
    """Return the statuses without their times if Slurm did not respond. A recent answer is used again for a second."""
    times = {name: status.get("as_of", 0.0) for name, status in statuses.items()}
    return {name: {**status, "as_of": None} for name, status in statuses.items()} if all(times.values()) else None


# -- start -----------------------------------------------------------------------------------------------------------


def test_run_inherits_the_environment_of_its_job(target):
    names = ("TOKEN", "FROM_SETUP", "CUDA_VISIBLE_DEVICES", "MLW_SUPERVISOR")
    script = f"import os, signal; print(*map(os.environ.get, {names}), signal.getsignal(signal.SIGUSR1).name)"
    setup = ["for word in of setup; do", "  FROM_SETUP=$FROM_SETUP$word", "done", "export FROM_SETUP"]
    run = target.add("r", script, gpus=2, gpu_model="h200", setup=setup, time=60, spec={"secrets": ["TOKEN"]})
    assert target.start("r", message={"secrets": {"TOKEN": SECRET}})["ok"]
    assert target.end(run) == ("succeeded", None)
    assert read(run / "log").split() == [SECRET, "ofsetup", "0,1", "None", "SIG_DFL"]
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


@pytest.mark.parametrize(
    ("stage", "started"),
    [("job-intended", False), ("job-submitted", False), ("job-submitted", True), ("job-recorded", False)],
)
def test_lost_answer_of_sbatch_makes_no_second_job(target, stage, started):
    """The process that submits is killed before sbatch, after it, and after it has recorded the job."""
    name = f"{stage}-{started}".lower()
    run = target.add(name, "print('once')")
    assert not target.start(name, env={"MLW_FAILPOINT": f"{stage}:kill"})["ok"]
    if started:  # before the repeated request
        wait_until(lambda: (run / "claim" / "owner.json").exists(), LONG)
    if stage == "job-intended":  # a minute ago, so that no job can appear anymore
        record = json.loads((run / "slurm.json").read_text())
        (run / "slurm.json").write_text(json.dumps({**record, "time": record["time"] - 60}))
    assert target.start(name, "n2")["ok"]
    assert target.end(run)[0] == "succeeded"
    names = target.slurm.admin("squeue", "-h", "-t", "all", "-o", "%A %j").stdout.splitlines()
    assert [job for job in names if job.endswith(f" {name}")] == [f"{target.job(run)} {name}"]
    assert read(run / "log") == "once\n"
    assert (run / "starter.json").exists() and target.status(run) == {"state": "ended", "job": target.job(run)}


def test_second_job_of_a_run_does_not_start_it(target):
    """A job may have been submitted twice in spite of everything. The claim decides."""
    run = target.submit("r", "print('once')", options=["--hold"])
    first = target.job(run)
    script = target.slurm.run("scontrol", "write", "batch_script", first, "-").stdout
    second = target.slurm.submit(script, f"--output={run}/slurm.out", "--open-mode=append")
    assert target.end(run)[0] == "succeeded"
    target.slurm.admin("scontrol", "release", first)
    for job in (second, first):
        target.slurm.wait_for(job, "COMPLETED")
    assert read(run / "log") == "once\n"
    assert f"job {first} does not start the run, because job {second} has" in read(run / "supervisor.log")
    assert target.status(run) == {"state": "ended", "job": str(second)}


def test_environment_that_is_not_prepared_needs_no_job(target):
    lock = {"kind": "managed", "digest": "0" * 64}
    spec = {"prepare": False, "compute": {"name": "hpc"}, "runconfig": "hpc", "secrets": ["TOKEN"]}
    run = target.add("r", lock=lock, spec=spec)
    assert target.start("r", message={"secrets": {"TOKEN": SECRET}})["ok"]
    ending, cause = target.end(run)
    assert ending == "environment failed" and cause is not None and "is not prepared on hpc" in cause
    assert target.call("adopt", "r")["state"] == "finished"
    assert target.slurm.jobs() == [] and target.secrets_left(SECRET.encode()) == []


def test_submission_that_died_during_a_build_ends_the_run(target):
    """For example, the login node was rebooted. The handle exists, but neither a job nor a process that submits one."""
    run = target.add("r")
    (run / "starter.json").write_text(json.dumps({"starter": "slurm", "handle": {"comment": "mlw r 0"}}))
    (run / "secrets.json").write_text(SECRET)
    target.hand_over()
    assert target.status(run)["state"] == "unknown", "its job may still appear"
    os.utime(run / "starter.json", (0, 0))
    target.adopt(run)
    cause = "the job ended before the run started; the submission to Slurm was interrupted"
    assert target.end(run) == ("could not start", cause)
    assert target.secrets_left(SECRET.encode()) == []


# -- a controller that does not respond ------------------------------------------------------------------------------


def test_silent_controller_ends_no_run(target):
    """The last known state is reported, with its time. A cancel is executed as soon as Slurm responds."""
    running, held = target.submit("running"), target.submit("held", options=["--hold"])
    target.wait_running(running)
    known = target.statuses("running", "held")
    quick = target.impatient()
    target.slurm.stop_controller()
    statuses = wait_until(lambda: silent(target.statuses("running", "held", env=quick)), LONG)
    assert {name: {**status, "as_of": None} for name, status in known.items()} == statuses
    target.add("late", "print('late')")
    failure = target.start("late", env=quick)["failure"]
    assert failure["code"] == "slurm-silent" and "Unable to contact slurm controller" in failure["message"]
    assert target.call("cancel", "held", "me", env=quick)["ok"]
    answer = target.call("adopt", "running", env=quick)
    assert answer["state"] == "scheduled" and answer["standing"]["state"] == "running"
    target.slurm.start_controller()
    wait_until(lambda: "as_of" not in target.status(running), LONG)
    wait_until(lambda: target.status(held)["state"] == "ended", LONG)
    target.adopt(held)
    assert target.end(held) == ("cancelled", "canceled before it started")
    record = json.loads((target.root / "runs/late/slurm.json").read_text())
    (target.root / "runs/late/slurm.json").write_text(json.dumps({**record, "time": record["time"] - 60}))
    assert target.start("late", "n2")["ok"]
    assert target.end(target.root / "runs" / "late")[0] == "succeeded"
    assert target.status(running)["state"] == "running" and not target.attempts(running)


# -- endings ---------------------------------------------------------------------------------------------------------


def test_endings_are_told_apart(target):
    slurm = target.slurm
    runs = {name: target.submit(name) for name in ("ours", "user", "root")}
    failed = target.submit("failed", "raise SystemExit(3)")
    memory = target.submit("memory", "bytearray(400 << 20)", options=["--mem=100M"])
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


def test_ending_without_a_supervisor(target):
    """The scheduler's report is the ending: after the death of the supervisor, and of a node without a new attempt."""
    killed = target.submit("killed", requeue=False)
    lost = target.submit("lost", requeue=False, options=["--nodelist=n3"])
    target.wait_running(killed, lost)
    assert target.call("adopt", "killed")["state"] == "scheduled"
    supervisor = json.loads((killed / "claim/owner.json").read_text())["pid"]
    target.slurm.nodes[target.node(killed)].run("kill", "-KILL", str(supervisor))
    target.slurm.cut_off("n3")
    target.adopt(killed)
    assert target.end(killed) == ("exit unknown", "the job failed")
    target.adopt(lost)
    assert target.end(lost) == ("node failure", "a node of the job failed")
    assert target.call("adopt", "lost") == {"ok": True, "state": "finished"}
    wait_until(lambda: not scripts(target, "n3"), LONG)  # although slurmd is dead, and its jobs are not


def test_job_that_slurm_has_forgotten(target):
    """Only after a while, and if the accounting has not heard of the job either, the exit is unknown."""
    run = target.submit("r")
    target.wait_running(run)
    record = json.loads((run / "slurm.json").read_text())
    (run / "slurm.json").write_text(json.dumps({**record, "job": "999999"}))
    status = {"state": "unknown", "reason": "Slurm has no record of job 999999", "job": "999999"}
    assert target.status(run) == status
    assert target.call("adopt", "r") == {"ok": True, "state": "scheduled", "standing": status}
    record = json.loads((run / "slurm.json").read_text())
    (run / "slurm.json").write_text(json.dumps({**record, "missing_since": record["missing_since"] - 16 * 60}))
    target.adopt(run)
    assert target.end(run) == ("exit unknown", "Slurm has no record of job 999999")


def test_cluster_without_accounting(slurm_plain):
    target = SlurmTarget(slurm_plain)
    done, canceled = target.submit("done", "print('up')"), target.submit("canceled")
    requeued = target.submit("requeued", options=["--nodelist=n1"])
    target.wait_running(done, canceled, requeued)
    slurm_plain.run("scancel", target.job(canceled))
    slurm_plain.admin("scontrol", "requeue", target.job(requeued))
    target.restart(requeued, "n2")
    assert target.end(done) == ("succeeded", None)
    assert target.end(canceled) == ("cancelled", "canceled in Slurm")
    wait_until(lambda: read(requeued / "log").count("up") == 2, LONG)
    assert target.attempts(requeued) == [(1, "requeued")]
    assert target.statuses("done", "requeued")["requeued"]["state"] == "running"


# -- attempts --------------------------------------------------------------------------------------------------------


def test_interrupted_jobs_continue_as_new_attempts(target):
    """Requeued by an administrator, preempted, and after the failure of a node; but not at the time limit."""
    slurm = target.slurm
    limited = target.submit("limited", SAVING, time=60)
    target.wait_running(limited)
    slurm.expire(target.job(limited))
    requeued = target.submit("requeued", options=["--nodelist=n1"])
    preempted = target.submit("preempted", qos="low", gpus=2, options=["--nodelist=n2"])
    failed = target.submit("failed", options=["--nodelist=n3"])
    runs = {requeued: "n2", preempted: "n1", failed: "n1"}
    target.wait_running(*runs)
    slurm.admin("scontrol", "requeue", target.job(requeued))
    target.submit("high", "print('up')", qos="high", gpus=2, options=["--nodelist=n2"])
    slurm.cut_off("n3")
    for run, node in runs.items():
        target.restart(run, node)
    for run in runs:
        wait_until(lambda run=run: read(run / "log").count("up") == 2, LONG)
    # slurmd of n3 was killed, but not its jobs: the claim of the new attempt ends the processes of the old one.
    wait_until(lambda: not scripts(target, "n3"), LONG)
    assert target.attempts(requeued) == [(1, "requeued")]
    assert target.attempts(preempted) == [(1, "preempted")]
    assert target.attempts(failed) == [(1, "node failure")]
    for run in runs:
        target.call("cancel", run.name, "me", "0")
        assert target.end(run) == ("cancelled", "canceled by me")
        assert json.loads((run / "attempts" / "2" / "claim" / "owner.json").read_text())["restart"] == 1
    assert target.end(limited) == ("timeout", "stopped at the job's time limit of 1 min")
    assert read(limited / "log").split() == ["up", "saved"], "the script has its grace period before the limit"
