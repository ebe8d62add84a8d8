"""Harness of the kill test for SSH targets, with the orders, script, and checkers of ``kill_harness``.

Each call carries its own failpoints for the target's processes (SendEnv on the client, AcceptEnv on the server), so
concurrent calls die at different stages. The target is a test machine whose processes are visible on this computer.
"""

from __future__ import annotations

import copy
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import Done, end_processes
from tests.e2e import kill_harness
from tests.e2e.kill_harness import Fault, FaultMix, Order, World
from tests.e2e.remote_target import RemoteTarget
from tests.machines.engine import Engine
from tests.machines.laptop import Laptop
from tests.machines.machine import Machine, MachineOptions
from tests.machines.network import Switch
from tests.machines.sandbox import Sandbox

KINDS = ("remote", "remotedocker")
AGENT = b"remote/agent.py"  # in the command lines of the agent, and of every supervisor and launcher that it starts
MIX = FaultMix(
    ("client", "client stage", "target stage", "target stage", "victim", "victim", "victim", "victim", "nobody"),
    ("supervisor", "launcher", "ours", "both", "storm", "agent", "session", "connection"),
)


@dataclass
class RemoteWorld(World):
    """A ``World`` whose target is a remote machine."""

    remote: RemoteTarget = field(kw_only=True)

    @staticmethod
    def attached(laptop: Laptop, host: Machine, kind: str) -> RemoteWorld:
        laptop.ssh_config("Host *\n  SendEnv MLW_FAILPOINT\n")
        remote = RemoteTarget(laptop, host, kind, project=laptop.project("kill", work=kill_harness.SCRIPT))
        world = RemoteWorld(laptop, remote.project, Path("~/observed"), options=("-c", remote.name), remote=remote)
        world.victim_timeout, world.pause = 10.0, 0.02  # each check reads all processes of this computer
        [warm] = kill_harness.execute_order(world, Order("first"))
        assert warm.code == 0, warm
        world.observer = remote.home / "observed"  # the first run of a container target creates this home folder
        return world

    @property
    def observer_argument(self) -> str:
        return "~/observed"

    def submit(self, order: Order) -> Done:
        """Submit in a fork: its environment in /proc lacks the store, so it is not mistaken for an earlier client."""
        user, arguments = copy.copy(self.user), self.submit_arguments(order, detach=False)
        user.installed = False
        return user.mlw(*arguments, cwd=self.project, env=self.env(order), timeout=kill_harness.TIMEOUT)

    @property
    def stores(self) -> list[Path]:
        return [self.user.store, self.remote.host.home / ".mlw"]

    def target_folder(self, run: str) -> Path:
        return self.remote.target_folder(run)

    # -- victims -----------------------------------------------------------------------------------------
    def victims(self, order: Order, fault: Fault, client: subprocess.Popen[bytes]) -> list[int]:
        if fault.who == "agent":
            return self._agent(client.pid)
        if fault.who == "session":
            return [pid for pid, command in self.remote.host._inside_processes() if _is_session(command)]
        if fault.who == "connection":
            return self._masters()
        run = self.run_of(order.key)
        return self._of_run(self.target_folder(run), order, fault) if run else []

    def _of_run(self, folder: Path, order: Order, fault: Fault) -> list[int]:
        supervisor = self._outside(kill_harness._json(folder / "claim" / "owner.json").get("pid"))
        launcher = self._outside(kill_harness._json(folder / "gate.json").get("pid"))
        if fault.who == "launcher":
            return launcher
        if fault.who in ("ours", "storm"):
            pids = [*supervisor, *launcher]
            return pids if fault.who == "storm" else random.Random(order.key).sample(pids, min(1, len(pids)))
        return supervisor

    def _outside(self, inner: int | None) -> list[int]:
        """Return the local PID of the mlw process with this PID on the target, if it is still running."""
        rows = self.remote.host._inside_processes()
        return [pid for pid, command in rows if AGENT.decode() in command and _inner(pid) == inner]

    def _agent(self, client: int) -> list[int]:
        """Return the agent that serves this client. Both command lines contain the same random token."""
        for place in Path(f"/proc/{client}/task").glob("*/children"):
            for pid in kill_harness._bytes(place).split():
                arguments = kill_harness._bytes(Path(f"/proc/{int(pid)}/cmdline")).replace(b"\0", b" ").split()
                if len(arguments) > 2 and arguments[-2].endswith(AGENT):
                    return [agent for agent, line in self._agents() if line.split()[-1] == arguments[-1].decode()]
        return []

    def _agents(self) -> list[tuple[int, str]]:
        """Return agents that serve a connection: their parent is sshd."""
        rows = self.remote.host._inside_processes()
        sessions = {pid for pid, command in rows if _is_session(command)}
        return [(pid, command) for pid, command in rows if AGENT.decode() in command and _parent(pid) in sessions]

    def _masters(self) -> list[int]:
        laptop = self.remote.laptop
        return [
            pid
            for pid in kill_harness.processes_using(laptop.runtime)
            if b"\0-M\0" in kill_harness._bytes(Path(f"/proc/{pid}/cmdline"))
        ]

    def kill(self, pid: int) -> bool:
        command = kill_harness._bytes(Path(f"/proc/{pid}/cmdline"))
        if AGENT in command:
            return kill_harness.kill_ours(pid, self.remote.host.home, AGENT)
        if _is_session(command.decode(errors="replace")) or b"\0-M\0" in command:
            try:
                os.kill(pid, signal.SIGKILL)
                return True
            except ProcessLookupError:
                return False
        return False

    # -- checkers ----------------------------------------------------------------------------------------
    def leftover_processes(self) -> list[str]:
        """Return leftover processes and containers, except the shared connection and the agents that it serves."""
        serving = {pid for pid, _ in self._agents()}
        remote = [
            f"{pid} {command}"
            for pid, command in self.remote.host._inside_processes()
            if pid not in serving and _is_ours(command)
        ]
        kept = self._masters()
        local = [
            f"{pid} here" for pid in kill_harness.processes_using(self.user.store) if pid not in kept and _is_mlw(pid)
        ]
        engine = self.remote.host.engine
        return remote + local + (engine.containers() if engine else [])

    def check_target(self, runs: list[dict[str, Any]]) -> list[str]:
        """Check that every run on the target is listed locally with the same log."""
        listed = {row["run_id"] for row in runs}
        folders = {path.name for path in (self.stores[1] / "runs").iterdir()}
        wrong = [f"runs on the target that are not listed: {folders - listed}"] if folders - listed else []
        for run in folders & listed:
            if kill_harness._bytes(self.user.folder(run) / "log") != kill_harness._bytes(
                self.target_folder(run) / "log"
            ):
                wrong.append(f"run {run}: the log here is not the one on the target")
        return wrong


def _is_session(command: str) -> bool:
    return command.startswith("sshd: ") and "[listener]" not in command


def _is_ours(command: str) -> bool:
    return AGENT.decode() in command or "work.py" in command or command.startswith("/usr/local/bin/docker")


def _is_mlw(pid: int) -> bool:
    return b"/mlw\0" in kill_harness._bytes(Path(f"/proc/{pid}/cmdline"))


def _inner(pid: int) -> int:
    for line in kill_harness._bytes(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return 0


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def run_orders(world: World, orders: list[Order], kills: int) -> None:
    """Execute orders, several in parallel, until the given number of kills has hit."""
    for first in range(0, len(orders), 12):
        kill_harness.run_parallel(lambda order: kill_harness.execute_order(world, order), orders[first : first + 12])
        if sum(attempt.hit for attempt in world.attempts) >= kills:
            return


@contextmanager
def remote_world(kind: str) -> Iterator[RemoteWorld]:
    """Create a machine, a laptop, and an attached target outside pytest, and remove everything afterwards."""
    with ExitStack() as stack:
        place = Sandbox()
        stack.callback(place.close)
        switch = Switch(place)
        stack.callback(switch.close)
        engine = _engine(stack, place, switch) if kind == "remotedocker" else None
        options = MachineOptions(docker="yes" if engine else "no", sshd="AcceptEnv MLW_FAILPOINT\nMaxSessions 30")
        host = Machine(switch, engine, options)
        stack.callback(host.close)
        folder = Path(tempfile.mkdtemp(prefix="mlw-soak-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        laptop = Laptop(folder)
        stack.callback(shutil.rmtree, laptop.runtime, ignore_errors=True)
        stack.callback(end_processes, folder)
        yield RemoteWorld.attached(laptop, host, kind)


def _engine(stack: ExitStack, place: Sandbox, switch: Switch) -> Engine:
    engine = Engine(place, switch)
    stack.callback(engine.close)
    engine.start()
    engine.load_image()
    return engine
