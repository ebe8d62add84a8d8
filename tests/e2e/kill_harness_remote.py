"""The kill test's harness for targets reached by SSH: the orders, the script and the checkers are those of ``killing``.

The fail points of the target's processes travel with each call (SendEnv here, AcceptEnv there), so calls that run at
the same time die at different stages. The target is a machine of the tests; its processes are seen from here.
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
from tests.e2e import killing
from tests.e2e.elsewhere import Away
from tests.e2e.killing import Fault, Mix, Order, World
from tests.machines.engine import Engine
from tests.machines.laptop import Laptop
from tests.machines.machine import Machine, Wanted
from tests.machines.network import Switch
from tests.machines.place import Place

KINDS = ("remote", "remotedocker")
AGENT = b"remote/agent.py"  # the agent, and every supervisor and launcher that it leaves behind
MIX = Mix(
    ("client", "client stage", "target stage", "target stage", "victim", "victim", "victim", "victim", "nobody"),
    ("supervisor", "launcher", "ours", "both", "storm", "agent", "session", "connection"),
)


@dataclass
class AwayWorld(World):
    """A world whose target is a machine elsewhere."""

    away: Away = field(kw_only=True)

    @staticmethod
    def attached(laptop: Laptop, host: Machine, kind: str) -> AwayWorld:
        laptop.ssh_config("Host *\n  SendEnv MLW_FAILPOINT\n")
        away = Away(laptop, host, kind, project=laptop.project("kill", work=killing.SCRIPT))
        world = AwayWorld(laptop, away.project, Path("~/observed"), options=("-c", away.name), away=away)
        world.patience, world.pause = 10.0, 0.02  # a look goes through all processes of this computer
        [warm] = killing.carry_out(world, Order("first"))
        assert warm.code == 0, warm
        world.observer = away.home / "observed"  # for containers that folder is made by the first run
        return world

    @property
    def observer_argument(self) -> str:
        return "~/observed"

    def submit(self, order: Order) -> Done:
        """A fork: the recovery is neither killed nor looked for by its variables, as the clients before it are."""
        user, words = copy.copy(self.user), self.words(order, detach=False)
        user.installed = False
        return user.mlw(*words, cwd=self.project, env=self.env(order), timeout=killing.PATIENCE)

    @property
    def stores(self) -> list[Path]:
        return [self.user.store, self.away.host.home / ".mlw"]

    def there(self, run: str) -> Path:
        return self.away.there(run)

    # -- victims -----------------------------------------------------------------------------------------
    def victims(self, order: Order, fault: Fault, client: subprocess.Popen[bytes]) -> list[int]:
        if fault.who == "agent":
            return self._agent(client.pid)
        if fault.who == "session":
            return [pid for pid, words in self.away.host._insiders() if _is_session(words)]
        if fault.who == "connection":
            return self._masters()
        run = self.run_of(order.key)
        return self._of_run(self.there(run), order, fault) if run else []

    def _of_run(self, folder: Path, order: Order, fault: Fault) -> list[int]:
        supervisor = self._outside(killing._json(folder / "claim" / "owner.json").get("pid"))
        launcher = self._outside(killing._json(folder / "gate.json").get("pid"))
        if fault.who == "launcher":
            return launcher
        if fault.who in ("ours", "storm"):
            found = [*supervisor, *launcher]
            return found if fault.who == "storm" else random.Random(order.key).sample(found, min(1, len(found)))
        return supervisor

    def _outside(self, inner: int | None) -> list[int]:
        """The process of mlw with this number on the target, by its number here; none if it has ended."""
        rows = self.away.host._insiders()
        return [pid for pid, words in rows if AGENT.decode() in words and _inner(pid) == inner]

    def _agent(self, client: int) -> list[int]:
        """The agent that serves this client: both command lines contain the same random word."""
        for place in Path(f"/proc/{client}/task").glob("*/children"):
            for pid in killing._bytes(place).split():
                words = killing._bytes(Path(f"/proc/{int(pid)}/cmdline")).replace(b"\0", b" ").split()
                if len(words) > 2 and words[-2].endswith(AGENT):
                    return [one for one, line in self._agents() if line.split()[-1] == words[-1].decode()]
        return []

    def _agents(self) -> list[tuple[int, str]]:
        """Agents that serve a connection: their parent is sshd."""
        rows = self.away.host._insiders()
        sessions = {pid for pid, words in rows if _is_session(words)}
        return [(pid, words) for pid, words in rows if AGENT.decode() in words and _parent(pid) in sessions]

    def _masters(self) -> list[int]:
        laptop = self.away.laptop
        return [
            pid for pid in killing.marked(laptop.runtime) if b"\0-M\0" in killing._bytes(Path(f"/proc/{pid}/cmdline"))
        ]

    def kill(self, pid: int) -> bool:
        words = killing._bytes(Path(f"/proc/{pid}/cmdline"))
        if AGENT in words:
            return killing.kill_ours(pid, self.away.host.home, AGENT)
        if _is_session(words.decode(errors="replace")) or b"\0-M\0" in words:
            try:
                os.kill(pid, signal.SIGKILL)
                return True
            except ProcessLookupError:
                return False
        return False

    # -- checkers ----------------------------------------------------------------------------------------
    def left(self) -> list[str]:
        """Processes and containers other than the shared connection and the agents that it serves."""
        serving = {pid for pid, _ in self._agents()}
        there = [
            f"{pid} {words}" for pid, words in self.away.host._insiders() if pid not in serving and _is_ours(words)
        ]
        kept = self._masters()
        here = [f"{pid} here" for pid in killing.marked(self.user.store) if pid not in kept and _is_mlw(pid)]
        engine = self.away.host.engine
        return there + here + (engine.containers() if engine else [])

    def check_target(self, found: list[dict[str, Any]]) -> list[str]:
        """Every run on the target is listed here, and its log is the same."""
        listed = {one["run_id"] for one in found}
        there = {path.name for path in (self.stores[1] / "runs").iterdir()}
        wrong = [f"runs on the target that are not listed: {there - listed}"] if there - listed else []
        for run in there & listed:
            if killing._bytes(self.user.folder(run) / "log") != killing._bytes(self.there(run) / "log"):
                wrong.append(f"run {run}: the log here is not the one on the target")
        return wrong


def _is_session(words: str) -> bool:
    return words.startswith("sshd: ") and "[listener]" not in words


def _is_ours(words: str) -> bool:
    return AGENT.decode() in words or "work.py" in words or words.startswith("/usr/local/bin/docker")


def _is_mlw(pid: int) -> bool:
    return b"/mlw\0" in killing._bytes(Path(f"/proc/{pid}/cmdline"))


def _inner(pid: int) -> int:
    for line in killing._bytes(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return 0


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def in_turns(world: World, wanted: list[Order], kills: int) -> None:
    """Carry out orders, some at once, until that many kills have hit."""
    for first in range(0, len(wanted), 12):
        killing.at_once(lambda one: killing.carry_out(world, one), wanted[first : first + 12])
        if sum(one.hit for one in world.attempts) >= kills:
            return


@contextmanager
def elsewhere(kind: str) -> Iterator[AwayWorld]:
    """A machine, a laptop and the target attached, outside pytest; everything is gone afterwards."""
    with ExitStack() as stack:
        place = Place()
        stack.callback(place.close)
        switch = Switch(place)
        stack.callback(switch.close)
        engine = _engine(stack, place, switch) if kind == "remotedocker" else None
        wanted = Wanted(docker="yes" if engine else "no", sshd="AcceptEnv MLW_FAILPOINT\nMaxSessions 30")
        host = Machine(switch, engine, wanted)
        stack.callback(host.close)
        folder = Path(tempfile.mkdtemp(prefix="mlw-soak-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        laptop = Laptop(folder)
        stack.callback(shutil.rmtree, laptop.runtime, ignore_errors=True)
        stack.callback(end_processes, folder)
        yield AwayWorld.attached(laptop, host, kind)


def _engine(stack: ExitStack, place: Place, switch: Switch) -> Engine:
    engine = Engine(place, switch)
    stack.callback(engine.close)
    engine.start()
    engine.load_image()
    return engine
