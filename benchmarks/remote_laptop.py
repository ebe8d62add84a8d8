"""The other machine of the measurements: a real sshd and a real Docker engine (those of the tests), and a laptop."""

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

from context import MLW, REPOSITORY, SCRIPTS, Context, await_supervisor, is_alive
from timing import Program

sys.path.insert(0, str(REPOSITORY))  # the machines are those of the tests

from tests.machines.engine import Engine
from tests.machines.machine import Machine, Wanted
from tests.machines.network import Switch
from tests.machines.place import Place

DOCKER, PLAIN = "my_dsvm", "my_box"  # names of the two targets
NEEDED = ("dockerd", "containerd", "runc", "docker", "sshd", "ssh", "ip", "nft", "unshare", "nsenter", "tini", "rsync")
_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TURN = 60.0  # seconds until a run must be over on the target


@dataclass
class Away:
    """A laptop with two targets on one machine: with a container, and without."""

    context: Context
    engine: Engine
    host: Machine
    folder: Path  # the laptop: its home, its store, its sockets

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder / "home"),
            "MLW_HOME": str(self.folder / "store"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "TMPDIR": str(self.folder / "tmp"),
            "PATH": f"{Path(MLW).parent}:{_SYSTEM}",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        }

    # -- programs ------------------------------------------------------------------------------------------

    def mlw(self, project: Path, *words: str) -> Program:
        return Program((MLW, *words), project, self.environment)

    def ssh(self, *words: str, shared: bool = False) -> Program:
        """The floor: the user's own ssh, with a new connection or through a kept one (ControlMaster)."""
        return Program(
            (*self.way(shared), f"{self.host.user}@{self.host.address}", *words), self.folder, self.environment
        )

    def way(self, shared: bool) -> tuple[str, ...]:
        """All that ``~/.ssh`` would say: ssh does not go by HOME."""
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
        way = " ".join(self.way(shared))
        there = f"{self.host.user}@{self.host.address}:{target}"
        return Program(("rsync", "-a", "--delete", "-e", way, f"{source}/", there), self.folder, self.environment)

    def docker_run(self, project: str, *words: str) -> tuple[str, ...]:
        """What one would type to run a script in a container there."""
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
            *words,
        )

    # -- projects ------------------------------------------------------------------------------------------

    def project(self, name: str) -> Path:
        """A new project with both targets, and a copy of its scripts on the machine for the floors."""
        home = self.folder / "home"
        self.context.call(self.mlw(home, "project", "create", "--name", name))
        project = home / name
        for script in SCRIPTS.glob("*.py"):
            shutil.copy(script, project)
        for target, kind in ((DOCKER, "remotedocker"), (PLAIN, "remote")):
            login = ("--username", self.host.user, "--private-key-file", str(self.host.key))
            known = ("--address", self.host.address, "--host-key", self.host.host_key_fingerprint)
            self.context.call(self.mlw(project, "computetarget", "attach", kind, "--name", target, *known, *login))
        compute = project / "aml_config" / f"{DOCKER}.compute"
        lines = [line for line in compute.read_text().splitlines() if not line.startswith("baseDockerImage:")]
        # The image's own Python, as the floors have it.
        lines += [f"baseDockerImage: {self.engine.image}", "userManagedEnvironment: true"]
        compute.write_text("\n".join([*lines, ""]))
        self.context.call(self.rsync(project, f"{self.host.home}/{name}"))
        return project

    # -- runs ----------------------------------------------------------------------------------------------

    @property
    def runs(self) -> Path:
        return Path(self.host.home, ".mlw", "runs")

    def settle(self) -> None:
        """Until no supervisor is at work there, and no container is left."""
        deadline = time.monotonic() + _TURN
        while any("remote/" in words for words in self._commands()) or self.engine.containers():
            if time.monotonic() > deadline:
                raise RuntimeError("a run does not end on the target")
            time.sleep(0.01)

    def _commands(self) -> Iterator[str]:
        """Of all processes of the user there, as seen from here."""
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and entry.stat().st_uid == self.host.uid and is_alive(int(entry.name)):
                    yield (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue

    def detach(self, project: Path, *words: str) -> str:
        """Submit, do not wait for the end here but there; the run's id."""
        answer = self.context.call(self.mlw(project, "submit", "--detach", "-o", "json", *words))
        run = str(json.loads(answer)["run_id"])
        await_supervisor(self.runs / run)
        self.settle()
        return run


def missing() -> str:
    """What this computer lacks to make the machines; nothing, we hope."""
    lacks = [name for name in NEEDED if shutil.which(name, path=_SYSTEM) is None]
    return ", ".join([*lacks, *(["being root"] if os.geteuid() else [])])


@contextmanager
def away(context: Context) -> Iterator[Away]:
    """Everything is gone afterwards."""
    with ExitStack() as stack:
        place = Place()
        stack.callback(place.close)
        switch = Switch(place)
        stack.callback(switch.close)
        engine = Engine(place, switch)
        stack.callback(engine.close)
        engine.start()
        engine.load_image()
        host = Machine(switch, engine, Wanted(docker="yes"))
        stack.callback(host.close)
        folder = context.outside / "laptop"
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in ("home", "store", "tmp", "run"):
            (folder / name).mkdir(mode=0o700, parents=True)
        (folder / "known_hosts").write_text(host.host_key)
        made = Away(context, engine, host, folder)
        stack.callback(_end_connections, made)
        keep = [*made.way(shared=True), "-M", "-N", "-f", f"{host.user}@{host.address}"]
        subprocess.run(keep, env=made.environment, check=True, stdin=subprocess.DEVNULL)
        yield made


def _end_connections(made: Away) -> None:
    """Kept connections live in our processes, not on the machine."""
    for entry in (made.folder / "run").rglob("*"):
        if entry.is_socket():
            subprocess.run(
                ["ssh", "-O", "exit", "-S", str(entry), "-F", "none", "any"],
                capture_output=True,
                check=False,
                timeout=10,
            )
