"""Executions of a Slurm job as attempts of its run, without a cluster: tests start what a job starts."""

from __future__ import annotations

import json

import pytest

from mlworkbench.remote.shared import machine

from .conftest import Place, end_marked, until

SCRIPT = "import os; print(os.environ.get('MLW_ATTEMPT', '1'), os.environ['SLURM_JOB_ID'])"
FAILING = SCRIPT + "; raise SystemExit(3)"
RETRIES = {"limit": 2, "causes": ["failed", "preempted"], "delay": 0.0}
# Programs of Slurm. The controller never answers sbatch, but it accepts the job: squeue shows it.
SILENT_SBATCH = """#!/bin/sh
for word in "$@"; do case $word in --comment=*) comment=${word#*=};; esac; done
echo "7|PENDING|None|N/A|N/A||r|$comment" >{folder}/queue
echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2
date +%s.%N >{folder}/answered
exit 1
"""
SCANCEL = '#!/bin/sh\necho "$@" >>{folder}/canceled\n'
SQUEUE = "#!/bin/sh\ncat {folder}/queue\n"


class Job(Place):
    """A target in which tests act as slurmd."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        conf = folder / "slurm.conf"  # without one, each program of Slurm searches for a minute
        conf.write_text("ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\n")
        self.env["SLURM_CONF"] = str(conf)

    def add(self, script=SCRIPT, **changes):
        return self.run("r", script, starter="slurm", scheduler={}, **changes)

    def install(self, folder, **programs):
        """Install programs of Slurm for ``start``, as shell scripts."""
        (folder / "bin").mkdir()
        (folder / "queue").touch()
        for name, text in programs.items():
            (folder / "bin" / name).write_text(text.replace("{folder}", str(folder)))
            (folder / "bin" / name).chmod(0o755)
        self.env["PATH"] = f"{folder}/bin:{self.env['PATH']}"

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


# -- submission ------------------------------------------------------------------------------------------------------


def test_job_without_its_secrets_does_not_start_the_run(job, tmp_path):
    """Slurm accepted the job, but its answer was lost. The failed submission has deleted the secrets."""
    job.install(tmp_path, sbatch=SILENT_SBATCH, squeue=SQUEUE)
    run = job.add(secrets=["TOKEN"])
    failure = job.start("r", message={"secrets": {"TOKEN": "canary-canary"}})["failure"]
    assert failure["code"] == "slurm-silent" and not (run / "secrets.json").exists()
    record = json.loads((run / "slurm.json").read_text())
    assert record["time"] > float((tmp_path / "answered").read_text()), "the job may appear after the time-out"
    assert job.execute() is True
    finished = job.ended(run)
    assert (finished["ending"], finished["cause"]) == (
        "could not start",
        "the secrets of the run were deleted before its job started",
    )
    assert not (run / "log").exists()


def test_repeated_submission_writes_the_secrets_again(job, tmp_path):
    job.install(tmp_path, sbatch=SILENT_SBATCH, squeue=SQUEUE)
    run = job.add("import os; print(len(os.environ['TOKEN']))", secrets=["TOKEN"])
    message = {"secrets": {"TOKEN": "canary-canary"}}
    assert not job.start("r", message=message)["ok"]
    assert job.start("r", "n2", message=message)["ok"]
    assert json.loads((run / "slurm.json").read_text())["job"] == "7"
    assert job.execute(secrets=json.loads((run / "secrets.json").read_text())["secrets"]) is True
    assert job.ended(run)["ending"] == "succeeded" and (run / "log").read_text() == "13\n"
    assert not (run / "secrets.json").exists()


def test_job_that_claims_the_run_is_its_job(job):
    """A job was submitted twice. The other one is recorded."""
    run = job.add()
    (run / "slurm.json").write_text(json.dumps({"comment": "mlw r 0", "time": 1.0, "job": "8", "submitted": 2.0}))
    assert job.execute() is True
    assert job.ended(run)["ending"] == "succeeded"
    assert job.execute(job="8") is False
    assert json.loads((run / "slurm.json").read_text())["job"] == "7"


def test_submission_does_not_replace_the_job_that_has_claimed_the_run(job, tmp_path):
    claim = 'mkdir {folder}/root/runs/r/claim; echo \'{"job": "7"}\' >{folder}/root/runs/r/claim/owner.json'
    job.install(tmp_path, sbatch=f"#!/bin/sh\n{claim}\necho 8\n")
    run = job.add()
    assert job.start("r")["ok"]
    assert json.loads((run / "slurm.json").read_text())["job"] == "7"


def test_cancel_during_the_submission_removes_the_job(job, tmp_path):
    """The cancel finds no job yet."""
    cancel = "echo '{}' >{folder}/root/runs/r/cancel.json"
    job.install(tmp_path, sbatch=f"#!/bin/sh\n{cancel}\necho 7\n", scancel=SCANCEL)
    run = job.add(secrets=["TOKEN"])
    assert job.start("r", message={"secrets": {"TOKEN": "canary-canary"}})["ok"]
    until(lambda: (tmp_path / "canceled").exists() and (tmp_path / "canceled").read_text().endswith("\n7\n"))
    until(lambda: not machine.is_locked(str(run / "submitting")))
    assert not (run / "secrets.json").exists()


def test_cancel_removes_the_secrets_of_a_job_that_is_not_known(job, tmp_path):
    job.install(tmp_path, squeue=SQUEUE)
    run = job.add(secrets=["TOKEN"])
    (run / "starter.json").write_text(json.dumps({"starter": "slurm", "handle": {"comment": "mlw r 0"}}))
    (run / "secrets.json").write_text("canary-canary")
    assert job.call("cancel", "r", "me")["ok"]
    assert not (run / "secrets.json").exists()


def test_cancel_of_a_requeued_job_reaches_the_queue(job, tmp_path):
    """The script of the first attempt has ended. The job waits for its next execution."""
    job.install(tmp_path, scancel=SCANCEL)
    run = job.add(FAILING, retries=RETRIES)
    job.execute(stage="attempt-ended:kill")
    assert (run / "exit.json").exists() and job.call("cancel", "r", "me", "0")["ok"]
    assert (tmp_path / "canceled").read_text() == "--state=PENDING 7\n--batch --signal=USR2 --state=RUNNING 7\n"


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
