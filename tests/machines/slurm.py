r"""A real Slurm cluster: a login machine with sshd, a controller, and three nodes with two fake GPUs each.

    def test_something(slurm, laptop):
        laptop.trust_host_keys(slurm.login)
        laptop.mlw("computetarget", "attach", "slurm", …, slurm.login.address)  # user ada; slurm.login_of("bob")
        job = slurm.submit("echo $SLURM_JOB_ID", "--nodes=2", "--gpus-per-node=1", user="bob")
        slurm.wait_for(job, "COMPLETED")
        slurm.admin("scontrol", "hold", str(job)); slurm.run("squeue", "--me", user="bob")
        slurm.kill_node("n1"); slurm.cut_off("n2"); slurm.drain("n3"); slurm.revive("n1", "n2", "n3")
        slurm.stop_controller(); slurm.start_controller(); slurm.start_now(job); slurm.expire(job)

Each machine has its own network, processes, boot ID, and /tmp; `/home` is one folder at the same path on all of them.
Users ada and bob differ in UID. Partitions: gpu (default) and low. With accounting, QoS low < normal < high, and a
higher one preempts (requeues) a lower one. Without accounting, partition gpu preempts partition low.

What one must know about Slurm 22.05:

- `sbatch` to the first output takes up to one second: the tick of the scheduler.
- A requeued job waits until the credential of its last start has expired (`cred_expire`, 120 s by default), with
  reason BeginTime. `start_now` ends the wait.
- Slurm checks time limits every 30 s and rounds them up to minutes. `expire` moves the end of a job to now, so a test
  of the limit waits 15 s on average.
- The tests declare a dead node down, instead of a short `SlurmdTimeout`, which would fail on a busy computer.
- A killed controller forgets what it has not saved yet (up to 5 s), accepted jobs too, and reuses their IDs.
- While the controller is down, squeue, sbatch, and others try for 9 s. After a restart, nodes are "unk" for 5 s.
- A job that `sbatch` refuses because no node can run it leaves a record: FAILED with reason BadConstraints.
- MariaDB needs its system tables, because Slurm uses stored procedures: otherwise no user has an association.
- Commands that `sacctmgr` reads from its standard input create limits of 0. One process per command works.
- A plain file as GPU is accepted by the controller, but slurmd does not set CUDA_VISIBLE_DEVICES: see `slurm_config`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evidence import copy_end, witnesses
from tests.machines import slurm_config
from tests.machines.account import Homes
from tests.machines.machine import Machine, MachineOptions
from tests.machines.network import Switch, wait_until
from tests.machines.plugin import NEEDED
from tests.machines.programs import call, need_all
from tests.machines.sandbox import thaw_group
from tests.machines.slurm_accounting import Accounting, is_listening, is_running

USERS = {"ada": 21001, "bob": 21002}
NODES = ("n1", "n2", "n3")
PROGRAMS = ("munged", "sbatch", "slurmctld", "slurmd")
WITH_ACCOUNTING = ("slurmdbd", "mariadbd")
PORT = 6817
LONG = 120  # seconds, for what takes a few on an idle computer
FOLDERS = ("etc/munge", "run/munge", "var/log/munge", "var/lib/munge", "var/log/slurm", "var/lib/slurm/slurmd")
HEALTHY = {"idle", "mix", "alloc", "comp"}


class SlurmCluster:
    """A cluster. `login` and the others are machines: `slurm.login.address`, `slurm.nodes["n1"].cut()`."""

    def __init__(self, switch: Switch, accounting: bool = True, **settings: str) -> None:
        """Start the cluster. `settings` replace or add lines of slurm.conf, such as MaxArraySize="11"."""
        self.switch, self.accounting, self.settings = switch, accounting, settings
        self.folder = switch.sandbox.folder / f"slurm{switch.number()}"
        self.folder.mkdir()
        self.homes = Homes(self.folder / "home", USERS)
        for user in USERS:
            self.homes.make(user, MachineOptions())
        self._munge_key = os.urandom(1024)
        self.controller, self.login = self._machine("ctl"), self._machine("login")
        self.nodes = {name: self._machine(name) for name in NODES}
        self._machines = [self.controller, self.login, *self.nodes.values()]
        witnesses.add(self)
        for machine in self._machines:
            self._configure(machine)
        self.controller.run("install", "-d", "/var/lib/slurm/slurmctld")
        if accounting:
            self.database = Accounting(self.controller, list(USERS), self.start_controller)
        self.start_controller()
        for name in self.nodes:
            self._start_slurmd(name)
        self.wait_idle()

    # -- commands -------------------------------------------------------------------------------------------------
    def login_of(self, user: str) -> Machine:
        """Return the login machine with the data of this user: key, home, UID."""
        return self.login.as_user(user)

    def run(
        self, *argv: str, user: str = "ada", check: bool = True, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as a user on the login machine, without the cost of an SSH connection."""
        return self.login.run(*argv, user=user, check=check, text=text)

    def ssh(self, command: str, user: str = "ada", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command of a user over SSH."""
        login = self.login_of(user)
        options = ("-F", "none", "-i", str(login.key), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no")
        return call(
            *("ssh", "-q", *options, "-o", "UserKnownHostsFile=/dev/null", f"{user}@{login.address}", command),
            check=check,
        )

    def admin(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command as root, who is Slurm's administrator."""
        return self.controller.run(*argv, check=check)

    def submit(self, script: str, *options: str, user: str = "ada") -> int:
        """Submit the lines of a shell script with sbatch and return the job ID."""
        text = script if script.startswith("#!") else f"#!/bin/sh\n{script}\n"
        done = self.run("sbatch", "--parsable", *options, user=user, text=text)
        return int(done.stdout.split(";")[0])

    # -- jobs -----------------------------------------------------------------------------------------------------
    def job(self, job: int | str) -> dict[str, str]:
        """Return the fields of `scontrol show job`, or {} if the controller does not know the job.

        Of an array, "4_2" is a task, and 4 is the record of the tasks that have not started.
        """
        done = self.admin("scontrol", "show", "job", "--oneliner", str(job), check=False)
        return dict(field.partition("=")[::2] for field in done.stdout.splitlines()[0].split()) if done.stdout else {}

    def state(self, job: int | str) -> str:
        return self.job(job).get("JobState", "")

    def wait_for(self, job: int | str, *states: str, seconds: float = LONG) -> dict[str, str]:
        """Wait until the job has one of these states, and return its fields."""
        wait_until(lambda: self.state(job) in states, f"job {job} in state {' or '.join(states)}", seconds)
        return self.job(job)

    def sacct(self, job: int | str, fields: str = "JobID,State,ExitCode") -> list[list[str]]:
        """Return the rows of sacct."""
        done = self.admin("sacct", "--noheader", "--parsable2", "--duplicates", "-j", str(job), "-o", fields)
        return [line.split("|") for line in done.stdout.splitlines()]

    def jobs(self) -> list[str]:
        """Return the IDs of all queued and running jobs."""
        return self.admin("squeue", "--noheader", "--format=%A").stdout.split()

    def start_now(self, job: int | str) -> None:
        """Let a requeued job start in the next second, without the wait for the end of its old credential.

        In the same second the node would confuse the new credential with the revoked one, and the job would fail.
        """
        self.admin("scontrol", "update", f"JobId={job}", "StartTime=now+1")

    def expire(self, job: int | str) -> None:
        """Let the time limit of a running job end now. Slurm notices within 30 s."""
        self.admin("scontrol", "update", f"JobId={job}", "EndTime=now+1")

    # -- faults ---------------------------------------------------------------------------------------------------
    def stop_controller(self, kill: bool = False) -> None:
        """Stop slurmctld. `kill`: without saving its state, so that it forgets the jobs of the last seconds."""
        self.controller.run("pkill", "-KILL" if kill else "-TERM", "--exact", "slurmctld")
        wait_until(lambda: not is_running(self.controller, "slurmctld"), "the end of slurmctld", LONG)

    def start_controller(self) -> None:
        """Start slurmctld and wait until it responds. It starts no jobs until it has found the nodes, in about 5 s."""
        self.controller.run("slurmctld")
        wait_until(lambda: is_listening(self.controller, PORT), "slurmctld", LONG)

    def kill_node(self, name: str) -> None:
        """Switch a node off: all its processes end, and Slurm declares it down."""
        thaw_group(self._group(name))
        self.nodes[name].power_off()
        self._declare_down(name)

    def cut_off(self, name: str, network: bool = False) -> None:
        """Cut a node off from the controller, while its jobs continue: kill slurmd, or drop all its packets."""
        if network:
            self.nodes[name].cut()
        else:
            self.nodes[name].run("pkill", "-KILL", "--exact", "slurmd")
        self._declare_down(name)

    def drain(self, name: str) -> None:
        """Accept no new jobs on a node."""
        self.admin("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=maintenance")

    def revive(self, *names: str) -> None:
        """Make nodes usable again after any of the faults."""
        for name in names:
            node = self.nodes[name]
            if not (node.root / "etc").exists():
                node.power_on()
                self._configure(node)
            node.heal()
            if not is_running(node, "slurmd"):
                self._start_slurmd(name)
            if self.node_states()[name] not in HEALTHY:
                self.admin("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
        wait_until(lambda: all(self.node_states()[name] in HEALTHY for name in names), f"nodes {names}", LONG)

    def _declare_down(self, name: str) -> None:
        self.admin("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=not_responding")

    # -- states ---------------------------------------------------------------------------------------------------
    def node_states(self) -> dict[str, str]:
        """Map nodes to their states, such as idle, mix, alloc, drain, or down*."""
        rows = self.admin("sinfo", "--noheader", "--Node", "--partition=gpu", "--format=%N %t", check=False).stdout
        return dict(line.split() for line in rows.splitlines())

    def wait_idle(self) -> None:
        """Wait until no job is queued or running and all nodes are idle."""

        def is_idle() -> bool:
            return not self.jobs() and self.node_states() == dict.fromkeys(NODES, "idle")

        wait_until(is_idle, "an idle cluster", LONG)

    def reset(self) -> None:
        """Restore the initial state: no jobs, processes, or files of users; all daemons run."""
        if not is_running(self.controller, "slurmctld"):
            self.start_controller()
        self.controller.heal()
        if jobs := self.jobs():
            self.admin("scancel", "--signal=KILL", "--full", *jobs, check=False)
            self.admin("scancel", *jobs, check=False)
        states = self.node_states()
        self.revive(*(name for name in NODES if states[name] not in HEALTHY))
        self.wait_idle()
        for machine in self._machines:
            machine.run("pkill", "-KILL", "--uid", ",".join(map(str, USERS.values())), check=False)
        for path in (path for user in USERS for path in self.homes.home(user).iterdir() if path.name != ".ssh"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def keep(self, folder: Path) -> None:
        """Save logs, processes, jobs, and nodes as evidence of a failed test."""
        for machine in self._machines:
            target = folder / machine.name
            target.mkdir()
            for path in sorted((machine.root / "var/log/slurm").glob("*.log")):
                copy_end(path, target)
            (target / "processes.txt").write_text(machine.run("ps", "-ewwf", check=False).stdout)
        for name, argv in {"jobs": ("show", "job"), "nodes": ("show", "node"), "config": ("show", "config")}.items():
            (folder / f"{name}.txt").write_text(self.admin("scontrol", *argv, check=False).stdout)

    def close(self) -> None:
        witnesses.discard(self)
        for name in NODES:
            thaw_group(self._group(name))
        for machine in self._machines:
            machine.close()
        if self.accounting:
            self.database.close()
        shutil.rmtree(self.folder)

    # -- creation -------------------------------------------------------------------------------------------------
    def _machine(self, name: str) -> Machine:
        machine = Machine(self.switch, None, MachineOptions(name=name), self.homes)
        witnesses.discard(machine)  # the cluster saves the evidence
        return machine

    def _configure(self, machine: Machine) -> None:
        """Write the configuration that all machines share, and start munged."""
        root = machine.root
        hosts = "".join(f"{other.address} {other.name}\n" for other in self._machines)
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
        machine.run("install", "-d", *(f"/{folder}" for folder in FOLDERS))
        machine.run("chown", "-R", "root:root", *(f"/{folder}" for folder in FOLDERS))
        (root / "etc/slurm").mkdir(exist_ok=True)
        addresses = {name: node.address for name, node in self.nodes.items()}
        text = slurm_config.slurm_conf(addresses, self.accounting, self.settings)
        (root / "etc/slurm/slurm.conf").write_text(text)
        (root / "etc/slurm/gres.conf").write_text(slurm_config.GRES)
        (root / "etc/slurm/cgroup.conf").write_text(slurm_config.CGROUP)
        key = root / "etc/munge/munge.key"
        key.write_bytes(self._munge_key)
        key.chmod(0o400)
        machine.run("munged")

    def _start_slurmd(self, name: str) -> None:
        node = self.nodes[name]
        for number in range(slurm_config.GPUS_PER_NODE):
            device = node.root / f"dev/nvidia{number}"
            if not device.exists():
                call("mknod", "-m", "666", str(device), "c", slurm_config.FAKE_GPU, str(number))
        if not (node.root / "run/cgroup").exists():
            node.run("sh", "-c", slurm_config.MOUNT_CGROUPS, "sh", self._group(name), name)
        node.run("slurmd")

    def _group(self, name: str) -> str:
        """Return the control group of a node's jobs. Slurm freezes the processes of suspended jobs there."""
        return f"/{self.switch.sandbox.cgroup}/{self.nodes[name].folder.name}"


@pytest.fixture(scope="session")
def session_slurm(switch: Switch) -> Iterator[SlurmCluster]:
    """A cluster for fixtures of a wider scope; tests use `slurm`."""
    need_all(*NEEDED, *PROGRAMS, *WITH_ACCOUNTING)
    cluster = SlurmCluster(switch)
    yield cluster
    cluster.close()


@pytest.fixture
def slurm(session_slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """A real Slurm cluster with accounting. Tests may break it; the next test gets it intact, without jobs."""
    yield session_slurm
    session_slurm.reset()


@pytest.fixture(scope="session")
def session_slurm_plain(switch: Switch) -> Iterator[SlurmCluster]:
    need_all(*NEEDED, *PROGRAMS)
    cluster = SlurmCluster(switch, accounting=False)
    yield cluster
    cluster.close()


@pytest.fixture
def slurm_plain(session_slurm_plain: SlurmCluster) -> Iterator[SlurmCluster]:
    """A real Slurm cluster without accounting: `sacct` and `sacctmgr` fail, and there is no QoS."""
    yield session_slurm_plain
    session_slurm_plain.reset()
