"""Executions of a Slurm job as attempts of its run, without a cluster: tests start what a job starts."""

from __future__ import annotations

import json

import pytest

from .conftest import Place, end_marked

SCRIPT = "import os; print(os.environ.get('MLW_ATTEMPT', '1'), os.environ['SLURM_JOB_ID'])"
FAILING = SCRIPT + "; raise SystemExit(3)"
RETRIES = {"limit": 2, "causes": ["failed", "preempted"], "delay": 0.0}


class Job(Place):
    """A target in which tests act as slurmd."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        conf = folder / "slurm.conf"  # without one, each program of Slurm searches for a minute
        conf.write_text("ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\n")
        self.env["SLURM_CONF"] = str(conf)

    def add(self, script=SCRIPT, **changes):
        return self.run("r", script, starter="slurm", scheduler={}, **changes)

    def execute(self, restart=0, job="7", stage="", secrets=None):
        """Execute the job until its supervisor ends, or is killed at a stage. Return whether it claimed an attempt."""
        env = {"SLURM_JOB_ID": job, **({"SLURM_RESTART_COUNT": str(restart)} if restart else {})}
        message = {"secrets": secrets or {}}
        try:
            return self.call("supervise", "r", "n1", message=message, env={**env, "MLW_FAILPOINT": stage})["claimed"]
        except AssertionError:  # killed before it answered
            return None

    def attempts(self, run):
        ended = [event["data"] for event in self.events(run) if event["kind"] == "attempt_ended"]
        return [(data["attempt"], data["ending"]) for data in ended]

    def interrupt(self, run, ending):
        """Leave the file that a supervisor writes when Slurm ends its job and will start it again."""
        (run / "interrupted.json").write_text(json.dumps({"ending": ending}))


@pytest.fixture
def job(tmp_path):
    yield Job(tmp_path)
    end_marked(tmp_path)


def test_each_execution_is_one_attempt(job):
    run = job.add()
    job.execute(stage="prepared:kill")
    assert job.execute() is False, "the same execution, started twice"
    job.execute(restart=1, stage="prepared@2:kill")
    assert job.execute(restart=3) is True
    assert job.execute(restart=2) is False, "an older one, on a node that was cut off"
    assert job.execute(restart=4) is False, "the run has ended"
    assert (run / "log").read_text() == "3 7\n"
    assert job.attempts(run) == [(1, "requeued"), (2, "requeued")]
    finished = job.ended(run)
    assert (finished["ending"], finished["exit"]) == ("succeeded", 0)


def test_another_job_never_starts_the_run(job):
    run = job.add()
    job.execute(stage="prepared:kill")
    assert job.execute(job="8", restart=5) is False
    assert not (run / "log").exists()


@pytest.mark.parametrize("stage", ["claimed", "placed", "launched"])
def test_execution_that_was_killed_early_is_followed_by_another(job, stage):
    run = job.add()
    job.execute(stage=f"{stage}:kill")
    assert job.execute(restart=1) is True
    assert job.ended(run)["ending"] == "succeeded" and "2 7\n" in (run / "log").read_text()


def test_retries_in_the_job_continue_the_numbers(job):
    run = job.add(FAILING, retries=RETRIES)
    job.execute(stage="attempt-ended:kill")
    assert job.execute(restart=1) is True
    assert (run / "log").read_text() == "1 7\n2 7\n3 7\n"
    assert job.attempts(run) == [(1, "failed"), (2, "failed")]
    assert job.ended(run)["ending"] == "failed"


@pytest.mark.parametrize(
    ("changes", "ending", "expected"),
    [
        ({"retries": RETRIES}, "preempted", None),
        ({"retries": RETRIES}, "node failure", ("node failure", "a node of the job failed")),
        ({"retries": {**RETRIES, "limit": 0}}, "preempted", ("preempted", "preempted by a job with a higher priority")),
        ({}, "preempted", None),
        (
            {"secrets": ["TOKEN"]},
            "requeued",
            ("exit unknown", "Slurm requeued the job, and the secrets of the run are no longer available"),
        ),
    ],
)
def test_retries_limit_what_a_requeued_job_does(job, changes, ending, expected):
    run = job.add(**changes)
    job.execute(stage="prepared:kill", secrets={"TOKEN": "canary-canary"})
    job.interrupt(run, ending)
    assert job.execute(restart=1) is (expected is None)
    finished = job.ended(run)
    assert (finished["ending"], finished["cause"]) == (expected or ("succeeded", None))
    assert job.attempts(run) == [(1, ending)]


def test_cancel_before_the_job_starts(job):
    run = job.add()
    assert job.call("cancel", "r", "me")["ok"]
    assert job.execute() is True
    assert job.ended(run)["ending"] == "cancelled" and not (run / "log").exists()


# -- the environment of a job ----------------------------------------------------------------------------------------


def test_environment_is_built_before_the_job_is_submitted(place, builder, tmp_path):
    """The request returns when the build begins. Here Slurm rejects the job after the build."""
    lock = builder.lock([builder.wheel("greet", {"greet.py": "print('hello')\n"})])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text(f"#!/bin/sh\nls {builder.prefix(lock)}.json >&2\nexit 1\n")
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    run = place.run("r", "import greet", starter="slurm", scheduler={}, lock=lock, secrets=["TOKEN"])
    path = f"{tmp_path}/bin:{place.env['PATH']}"
    message = {"secrets": {"TOKEN": "canary-canary"}}
    assert place.call("start", "r", "n1", message=message, env={"PATH": path}) == {"ok": True, "claimed": True}
    assert (run / "starter.json").exists()
    finished = place.ended(run)
    assert (finished["ending"], finished["cause"]) == ("could not start", f"sbatch: {builder.prefix(lock)}.json")
    assert [event["kind"] for event in place.events(run)] == ["accepted", "step", "finished"]
    assert not [file for file in run.rglob("*") if file.is_file() and b"canary-canary" in file.read_bytes()]
