"""Record what Slurm's commands print about jobs in all states: `python -m tests.machines.slurm_recording FOLDER`.

The folder receives a file per command and moment (busy.squeue.json, ended.sacct.txt, …), `jobs.json` with the IDs of
the jobs by what happened to them, and `commands.json` with arguments, exit codes, and error texts. Run it as root.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from tests.machines.network import Switch, wait_until
from tests.machines.sandbox import Sandbox
from tests.machines.slurm import SlurmCluster

SQUEUE = "%i|%A|%F|%K|%T|%r|%u|%j|%k|%P|%q|%a|%V|%S|%e|%M|%l|%D|%C|%m|%b|%N|%B|%Q|%Z"
FORMAT = (
    "JobID:|,ArrayJobID:|,ArrayTaskID:|,State:|,Reason:|,UserName:|,Name:|,Comment:|,Partition:|,QOS:|,SubmitTime:|,"
    "EligibleTime:|,StartTime:|,EndTime:|,TimeLimit:|,NumNodes:|,NodeList:|,tres-alloc:|,tres-per-node:|,exit_code:|,"
    "RestartCnt:|,PriorityLong:"
)
SACCT = (
    "JobID,JobIDRaw,JobName,Partition,Account,QOS,User,State,ExitCode,DerivedExitCode,Reason,Submit,Eligible,Start,End,"
    "Elapsed,Timelimit,NNodes,NodeList,AllocTRES,ReqTRES,MaxRSS,ReqMem,Comment,SubmitLine"
)
COMMANDS = {
    "squeue.json": ("squeue", "--json"),
    "squeue.txt": ("squeue",),
    "squeue-o.txt": ("squeue", "--all", "--states=all", f"--format={SQUEUE}"),
    "squeue-o-array.txt": ("squeue", "--array", "--noheader", "--format=%i|%F|%K|%T|%r"),
    "squeue-format.txt": ("squeue", "--states=all", f"--Format={FORMAT}"),
    "squeue-start.txt": ("squeue", "--start"),
    "scontrol-job.txt": ("scontrol", "show", "job", "--oneliner", "--details"),
    "sacct.txt": ("sacct", "--allusers", "--parsable2", f"--format={SACCT}"),
    "sacct-duplicates.txt": (
        "sacct",
        "--allusers",
        "--duplicates",
        "--allocations",
        "--parsable2",
        f"--format={SACCT}",
    ),
    "sacct.json": ("sacct", "--allusers", "--allocations", "--json"),
    "sinfo.txt": ("sinfo",),
    "sinfo-o.txt": ("sinfo", "--Node", "--format=%N|%P|%t|%T|%G|%c|%m|%e|%f|%E|%l|%C"),
    "sinfo-format.txt": ("sinfo", "--Node", "--Format=NodeHost:|,Partition:|,StateLong:|,Gres:|,GresUsed:|,Reason:"),
    "sinfo.json": ("sinfo", "--json"),
    "scontrol-node.txt": ("scontrol", "show", "node", "--oneliner"),
}
REQUEUED = {name: COMMANDS[name] for name in ("squeue-o.txt", "scontrol-job.txt", "sacct-duplicates.txt")}
ONCE = {
    "scontrol-job-lines.txt": ("scontrol", "show", "job"),
    "squeue-o-bob.txt": COMMANDS["squeue-o.txt"],
    "sacct-invalid-field.txt": ("sacct", "--format=JobID,Restarts"),
    "sbatch-version.txt": ("sbatch", "--version"),
    "scontrol-config.txt": ("scontrol", "show", "config"),
    "scontrol-partition.txt": ("scontrol", "show", "partition", "--oneliner"),
    "scontrol-ping.txt": ("scontrol", "ping"),
    "scontrol-hostnames.txt": ("scontrol", "show", "hostnames", "n[1-3]"),
    "sacctmgr-associations.txt": ("sacctmgr", "show", "associations", "--parsable2"),
    "sacctmgr-qos.txt": ("sacctmgr", "show", "qos", "--parsable2"),
    "sacctmgr-user.txt": ("sacctmgr", "show", "user", "ada", "withassoc", "--parsable2"),
    "sacctmgr-tres.txt": ("sacctmgr", "show", "tres", "--parsable2"),
    "sacctmgr-cluster.txt": ("sacctmgr", "show", "cluster", "--parsable2"),
    "unknown-partition.txt": ("sbatch", "--partition=nowhere", "--wrap=true"),
    "unknown-qos.txt": ("sbatch", "--qos=best", "--wrap=true"),
    "unknown-account.txt": ("sbatch", "--account=strangers", "--wrap=true"),
    "unknown-constraint.txt": ("sbatch", "--constraint=fast", "--wrap=true"),
    "unknown-gpu.txt": ("sbatch", "--gpus-per-node=a100:1", "--wrap=true"),
    "unknown-option.txt": ("sbatch", "--no-such-option", "--wrap=true"),
    "too-many-gpus.txt": ("sbatch", "--gpus-per-node=3", "--wrap=true"),
    "too-many-nodes.txt": ("sbatch", "--nodes=4", "--wrap=true"),
    "too-large-array.txt": ("sbatch", "--array=0-2000", "--wrap=true"),
    "unknown-job-squeue.txt": ("squeue", "--jobs=4000"),
    "unknown-job-scontrol.txt": ("scontrol", "show", "job", "4000"),
    "unknown-job-sacct.txt": ("sacct", "--jobs=4000", "--parsable2"),
    "unknown-job-scancel.txt": ("scancel", "4000"),
    "job-of-another-user-scancel.txt": ("scancel", "1"),
}
DOWN = {
    "squeue.txt": ("squeue",),
    "scontrol-job.txt": ("scontrol", "show", "job"),
    "sbatch.txt": ("sbatch", "--wrap=true"),
    "scancel.txt": ("scancel", "1"),
    "scontrol-ping.txt": ("scontrol", "ping"),
    "sacct.txt": ("sacct", "--allocations", "--parsable2"),
}
WITHOUT_ACCOUNTING = {
    "squeue-o.txt": COMMANDS["squeue-o.txt"],
    "scontrol-job.txt": COMMANDS["scontrol-job.txt"],
    "scontrol-config.txt": ("scontrol", "show", "config"),
    "sacct.txt": ("sacct", "--allocations", "--parsable2"),
    "sacctmgr-user.txt": ("sacctmgr", "show", "user", "ada", "withassoc", "--parsable2"),
    "unknown-account.txt": ("sbatch", "--account=strangers", "--wrap=true"),
}
STUBBORN = "trap '' TERM; while :; do sleep 0.1; done"
# Jobs that end without further events.
ENDING = {
    "completed": ("srun true", "--nodes=2", "--gpus-per-node=h200:1", "--comment=mlw:run-1"),
    "hostile name": ("true", "--job-name=a|b JobState=FAILED\tc%20;$(x)", "--comment=é|JobState=RUNNING x=y"),
    "failed": ("exit 3",),
    "failed step": ("srun false; exit 0",),
    "killed by signal": ("kill -9 $$",),
    "out of memory": ("head -c 300m /dev/zero | tail", "--mem=50"),
    "out of memory in a step": ("srun sh -c 'head -c 300m /dev/zero | tail'", "--mem=50"),
    "unwritable log": ("true", "--output=/nowhere/log"),
    "environment": ("srun env | grep ^SLURM", "--nodes=2", "--gpus-per-node=1", "--output=environment.txt"),
    "environment of an array": ("env | grep ^SLURM", "--array=3,5", "--output=environment-%a.txt"),
    "array with failures": ("exit $SLURM_ARRAY_TASK_ID", "--array=0-3%2"),
}
# Jobs that hold all GPUs, so that others wait.
RUNNING = {
    "running": ("sleep 1000", "--nodelist=n1", "--gpus-per-node=2", "--comment=mlw:run-2", "--qos=normal"),
    "running array": ("sleep 1000", "--nodelist=n2", "--gpus-per-node=1", "--array=1-5%2"),
    "signal in advance": ("sleep 1000", "--nodelist=n1", "--signal=B:TERM@60", "--time=10"),
    "suspended": ("sleep 1000", "--nodelist=n1"),
    "on a draining node": ("sleep 1000", "--nodelist=n3", "--gpus-per-node=2"),
}
PENDING = {
    "resources": ("true", "--nodes=2", "--gpus-per-node=2"),
    "priority": ("true", "--gpus-per-node=2"),
    "held by user": ("true", "--hold"),
    "held by admin": ("true", "--hold"),
    "begin time": ("true", "--begin=now+1hour"),
    "too long for the partition": ("true", "--time=2-00:00:00"),
    "array of 50": ("true", "--array=0-49%4", "--hold"),
    "deadline": ("true", "--gpus-per-node=2", "--time=1", "--deadline=now+1minutes"),
}


class Recording:
    """A cluster and the folder for what its commands print."""

    def __init__(self, slurm: SlurmCluster, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder
        self.jobs: dict[str, int] = {}
        self.commands: dict[str, dict[str, object]] = {}

    def write(self, moment: str, commands: dict[str, tuple[str, ...]], user: str = "ada") -> None:
        for name, argv in commands.items():
            done = self.slurm.run(*argv, user=user, check=False)
            text = done.stdout
            if name.endswith(".json"):  # otherwise half of the text is white space
                text = json.dumps(json.loads(text), separators=(",", ":")) + "\n"
            (self.folder / f"{moment}.{name}").write_text(text)
            self.commands[f"{moment}.{name}"] = {"argv": argv, "code": done.returncode, "stderr": done.stderr}

    def submit(self, jobs: dict[str, tuple[str, ...]], user: str = "ada") -> None:
        for name, (script, *options) in jobs.items():
            self.jobs[name] = self.slurm.submit(script, *options, user=user)

    def start(self, name: str, script: str, *options: str, user: str = "ada") -> int:
        """Submit a job and wait until it runs."""
        self.submit({name: (script, *options)}, user)
        array = next((option for option in options if option.startswith("--array=")), "")
        first = f"_{array[8]}" if array else ""
        self.slurm.wait_for(f"{self.jobs[name]}{first}", "RUNNING")
        return self.jobs[name]

    def finish(self) -> None:
        for path in self.slurm.homes.home("ada").glob("environment*.txt"):
            shutil.copyfile(path, self.folder / path.name)
        (self.folder / "jobs.json").write_text(json.dumps(self.jobs, indent=1) + "\n")
        (self.folder / "commands.json").write_text(json.dumps(self.commands, indent=1) + "\n")


def record(recording: Recording) -> None:
    slurm, jobs = recording.slurm, recording.jobs
    recording.submit(ENDING)
    _end(recording)
    _fill(recording)
    recording.write("busy", {name: argv for name, argv in COMMANDS.items() if name != "sacct.json"})
    recording.write("once", ONCE, "bob")
    slurm.wait_for(jobs["deadline"], "DEADLINE", seconds=180)
    slurm.admin("scancel", *slurm.jobs())
    slurm.revive("n3")
    slurm.wait_idle()
    wait_until(lambda: not _unfinished(slurm), "all endings in the accounting", 60)
    recording.write("ended", {name: argv for name, argv in COMMANDS.items() if name != "squeue.json"})
    slurm.stop_controller()
    recording.write("controller-down", DOWN)
    slurm.database.stop()
    recording.write("all-down", {name: DOWN[name] for name in ("sacct.txt",)})
    recording.finish()


def _fill(recording: Recording) -> None:
    """Fill the cluster with running jobs, and let jobs wait for each reason."""
    slurm, jobs = recording.slurm, recording.jobs
    recording.submit({"of another user": ("sleep 1000",)}, "bob")
    for name, (script, *options) in RUNNING.items():
        recording.start(name, script, *options)
    slurm.admin("scontrol", "suspend", str(jobs["suspended"]))
    requeued, held = (recording.start(name, "sleep 1000") for name in ("requeued, waits", "requeued and held"))
    recording.submit(PENDING)
    slurm.admin("scontrol", "hold", str(jobs["held by admin"]))
    recording.submit(
        {
            "dependency": ("true", f"--dependency=afterok:{jobs['running']}"),
            "dependency never satisfied": ("true", f"--dependency=afterok:{jobs['failed']}"),
        }
    )
    slurm.drain("n3")
    recording.submit({"drained node": ("true", "--nodelist=n3", "--partition=low")})
    for name, reason in {"priority": "Priority", "resources": "Resources", "drained node": "ReqNodeNotAvail"}.items():
        _wait_for_reason(slurm, jobs[name], reason)
    slurm.run("scontrol", "requeuehold", str(held))
    slurm.wait_for(held, "PENDING")
    slurm.run("scontrol", "requeue", str(requeued))
    slurm.wait_for(requeued, "PENDING")


def _wait_for_reason(slurm: SlurmCluster, job: int, reason: str) -> None:
    wait_until(lambda: slurm.job(job).get("Reason", "").startswith(reason), f"job {job} with reason {reason}", 60)


def _end(recording: Recording) -> None:
    """Let jobs end in the ways that need an event."""
    slurm, jobs = recording.slurm, recording.jobs
    limited = recording.start("time limit", "sleep 1000", "--time=1")
    slurm.expire(limited)
    stubborn = recording.start("time limit, ignores SIGTERM", STUBBORN, "--time=1")
    slurm.expire(stubborn)
    slurm.run("scancel", str(recording.start("cancelled by user", "sleep 1000")))
    slurm.admin("scancel", str(recording.start("cancelled by admin", "sleep 1000")))
    recording.submit({"cancelled while queued": ("true", "--hold")})
    slurm.run("scancel", str(jobs["cancelled while queued"]))
    array = recording.start("array with one cancelled task", "sleep 3", "--array=0-1")
    slurm.run("scancel", f"{array}_1")
    slurm.wait_for(limited, "TIMEOUT")
    slurm.wait_for(stubborn, "TIMEOUT")
    slurm.wait_idle()
    for name, options in {"node failure": ("--no-requeue",), "node failure, requeued": ("--requeue",)}.items():
        recording.start(name, '[ "$SLURM_RESTART_COUNT" ] || sleep 1000', "--nodelist=n3", *options)
    slurm.kill_node("n3")
    again = jobs["node failure, requeued"]
    slurm.wait_for(again, "PENDING")
    recording.write("requeued", REQUEUED)
    slurm.revive("n3")
    slurm.start_now(again)
    slurm.wait_for(again, "COMPLETED")
    for name, options in {"preempted": ("--no-requeue",), "preempted, requeued": ("--requeue",)}.items():
        script = '[ "$SLURM_RESTART_COUNT" ] || sleep 1000'
        again = recording.start(name, script, "--nodelist=n3", "--qos=low", "--partition=low", *options)
    recording.submit({"preempts": ("true", "--nodelist=n3", "--exclusive", "--qos=high")})
    slurm.wait_for(jobs["preempts"], "COMPLETED")
    slurm.start_now(again)
    slurm.wait_for(again, "COMPLETED")
    again = recording.start("requeued by user", '[ "$SLURM_RESTART_COUNT" ] || sleep 1000')
    slurm.run("scontrol", "requeue", str(again))
    slurm.wait_for(again, "PENDING")
    slurm.start_now(again)
    slurm.wait_for(again, "COMPLETED")


def _unfinished(slurm: SlurmCluster) -> str:
    return slurm.admin("sacct", "--allusers", "--noheader", "--state=RUNNING,PENDING,REQUEUED,SUSPENDED").stdout


def _record_without_accounting(recording: Recording) -> None:
    slurm = recording.slurm
    preempted = recording.start("preempted", "sleep 1000", "--partition=low", "--nodelist=n1")
    recording.submit({"preempts": ("sleep 1000", "--exclusive", "--nodelist=n1")})
    slurm.wait_for(preempted, "PENDING")
    recording.write("preempted", WITHOUT_ACCOUNTING)
    recording.finish()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "no-accounting").mkdir(exist_ok=True)
    sandbox = Sandbox()
    switch = Switch(sandbox)
    try:
        slurm = SlurmCluster(switch)
        record(Recording(slurm, folder))
        slurm.close()
        slurm = SlurmCluster(switch, accounting=False)
        _record_without_accounting(Recording(slurm, folder / "no-accounting"))
        slurm.close()
    finally:
        switch.close()
        sandbox.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
