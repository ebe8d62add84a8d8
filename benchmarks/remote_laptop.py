"""The remote machine of the benchmarks: a real sshd and a real Docker engine (from the tests), and a laptop."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from context import REPOSITORY, SCRIPTS, Context, await_supervisor, is_alive
from timing import Program

sys.path.insert(0, str(REPOSITORY))  # so that tests.machines can be imported

from tests.machines.engine import Engine
from tests.machines.machine import Machine, MachineOptions
from tests.machines.network import Switch
from tests.machines.sandbox import Sandbox

DOCKER, PLAIN = "my_dsvm", "my_box"  # names of the two targets
NEEDED = ("dockerd", "containerd", "runc", "docker", "sshd", "ssh", "ip", "nft", "unshare", "nsenter", "tini", "rsync")
_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TURN = 60.0  # maximum seconds until a run has ended on the target


@dataclass
class RemoteLaptop:
    """A laptop with two targets on one machine: one with containers, one without."""

    context: Context
    engine: Engine
    host: Machine
    folder: Path  # the laptop's home, store, and sockets

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder / "home"),
            "MLW_HOME": str(self.folder / "store"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "TMPDIR": str(self.folder / "tmp"),
            "PATH": f"{Path(self.context.program).parent}:{_SYSTEM}",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        }

    # -- programs ------------------------------------------------------------------------------------------

    def mlw(self, project: Path, *arguments: str) -> Program:
        return Program((self.context.program, *arguments), project, self.environment)

    def ssh(self, *arguments: str, shared: bool = False) -> Program:
        """Return the baseline: plain ssh, with a new or a shared connection (ControlMaster)."""
        return Program(
            (*self.ssh_command(shared), f"{self.host.user}@{self.host.address}", *arguments),
            self.folder,
            self.environment,
        )

    def ssh_command(self, shared: bool) -> tuple[str, ...]:
        """Return the ssh command with options in place of the files in ``~/.ssh``, because ssh ignores HOME."""
        options = ["IdentitiesOnly=yes", "BatchMode=yes", f"UserKnownHostsFile={self.folder / 'known_hosts'}"]
        kept = ["-S", str(self.folder / "run" / "floor")] if shared else ["-S", "none"]
        return (
            "ssh",
            "-F",
            "none",
            "-i",
            str(self.host.key),
            *(word for one in options for word in ("-o", one)),
            *kept,
        )

    def rsync(self, source: Path, target: str, shared: bool = True) -> Program:
        ssh_command = " ".join(self.ssh_command(shared))
        destination = f"{self.host.user}@{self.host.address}:{target}"
        return Program(
            ("rsync", "-a", "--delete", "-e", ssh_command, f"{source}/", destination), self.folder, self.environment
        )

    def docker_run(self, project: str, *arguments: str) -> tuple[str, ...]:
        """Return the command that a user would type on the machine to run a script in a container."""
        where = f"{self.host.home}/{project}"
        return (
            "docker",
            "run",
            "--rm",
            "-v",
            f"{where}:{where}",
            "-w",
            where,
            self.engine.image,
            "python3",
            "-u",
            *arguments,
        )

    # -- projects ------------------------------------------------------------------------------------------

    def project(self, name: str) -> Path:
        """Create a project with both targets, and copy its scripts to the machine for the baselines."""
        home = self.folder / "home"
        self.context.call(self.mlw(home, "project", "create", "--name", name))
        project = home / name
        for script in SCRIPTS.glob("*.py"):
            shutil.copy(script, project)
        for target, kind in ((DOCKER, "remotedocker"), (PLAIN, "remote")):
            login = ("--username", self.host.user, "--private-key-file", str(self.host.key))
            options = ("--address", self.host.address, "--host-key", self.host.host_key_fingerprint)
            self.context.call(self.mlw(project, "computetarget", "attach", kind, "--name", target, *options, *login))
        compute = project / "aml_config" / f"{DOCKER}.compute"
        lines = [line for line in compute.read_text().splitlines() if not line.startswith("baseDockerImage:")]
        # Use the Python of the image, as the baselines do.
        lines += [f"baseDockerImage: {self.engine.image}", "userManagedEnvironment: true"]
        compute.write_text("\n".join([*lines, ""]))
        self.context.call(self.rsync(project, f"{self.host.home}/{name}"))
        return project

    # -- runs ----------------------------------------------------------------------------------------------

    @property
    def runs(self) -> Path:
        return Path(self.host.home, ".mlw", "runs")

    def settle(self) -> None:
        """Wait until all supervisors and containers on the machine have ended."""
        deadline = time.monotonic() + _TURN
        while any("remote/" in command for command in self._commands()) or self.engine.containers():
            if time.monotonic() > deadline:
                raise RuntimeError("a run does not end on the target")
            time.sleep(0.01)

    def _commands(self) -> Iterator[str]:
        """Yield the command lines of the user's processes on the machine, which this computer's /proc contains."""
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and entry.stat().st_uid == self.host.uid and is_alive(int(entry.name)):
                    yield (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue

    def detach(self, project: Path, *arguments: str) -> str:
        """Submit a detached run, wait until it has ended on the machine, and return its ID."""
        answer = self.context.call(self.mlw(project, "submit", "--detach", "-o", "json", *arguments))
        run = str(json.loads(answer)["run_id"])
        await_supervisor(self.runs / run)
        self.settle()
        return run


def missing() -> str:
    """Return the missing requirements for the machine as text, or an empty string."""
    lacks = [name for name in NEEDED if shutil.which(name, path=_SYSTEM) is None]
    return ", ".join([*lacks, *(["being root"] if os.geteuid() else [])])


@contextmanager
def remote_laptop(context: Context) -> Iterator[RemoteLaptop]:
    """Start the machine, and remove everything afterwards."""
    with ExitStack() as stack:
        place = Sandbox()
        stack.callback(place.close)
        switch = Switch(place)
        stack.callback(switch.close)
        engine = Engine(place, switch)
        stack.callback(engine.close)
        engine.start()
        engine.load_image()
        host = Machine(switch, engine, MachineOptions(docker="yes"))
        stack.callback(host.close)
        yield stack.enter_context(laptop(context, engine, host))


@contextmanager
def laptop(context: Context, engine: Engine, host: Machine) -> Iterator[RemoteLaptop]:
    """Create a laptop with a shared connection to a machine."""
    with ExitStack() as stack:
        folder = context.workspace / "laptop"
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in ("home", "store", "tmp", "run"):
            (folder / name).mkdir(mode=0o700, parents=True)
        (folder / "known_hosts").write_text(host.host_key)
        remote = RemoteLaptop(context, engine, host, folder)
        stack.callback(_end_connections, remote)
        keep = [*remote.ssh_command(shared=True), "-M", "-N", "-f", f"{host.user}@{host.address}"]
        subprocess.run(keep, env=remote.environment, check=True, stdin=subprocess.DEVNULL)
        yield remote


def _end_connections(remote: RemoteLaptop) -> None:
    """End the shared connections, which live in local processes, not on the machine."""
    for entry in (remote.folder / "run").rglob("*"):
        if entry.is_socket():
            subprocess.run(
                ["ssh", "-O", "exit", "-S", str(entry), "-F", "none", "any"],
                capture_output=True,
                check=False,
                timeout=10,
            )
