"""A project, a laptop, and a remote machine, shared by the tests of remote runs."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import Done, end_processes
from tests.machines.laptop import Laptop
from tests.machines.machine import Machine
from tests.machines.network import read, wait_until
from tests.machines.programs import call
from tests.machines.proxy import Proxy

# The script is its own observer: it writes to a file that the product does not read. Arguments control what it does.
WORK = """
import os, sys, time

home = os.path.expanduser("~")
key = sys.argv[1]

def observe(word):
    file = os.open(os.path.join(home, "observed"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, ("%s %s\\n" % (word, key)).encode())
    os.close(file)

observe("start")
number = 0
while "--ticks" in sys.argv and not os.path.exists(os.path.join(home, "go")):
    print("tick", number, flush=True)
    number += 1
    time.sleep(0.02)
for number in range(20):
    print(key, number)
with open("outputs/result.txt", "w") as file:
    file.write(key * 1000)
observe("end")
"""


def final_output(key: str) -> bytes:
    """Return the last lines that the script must print."""
    return "".join(f"{key} {number}\n" for number in range(20)).encode()


class RemoteTarget:
    """One target, attached to one project on one laptop. ``target_folder`` returns a run's folder on the machine."""

    def __init__(self, laptop: Laptop, host: Machine, kind: str = "remote", **more: Any) -> None:
        self.laptop, self.host, self.kind = laptop, host, kind
        self.name = str(more.get("name", "box"))
        self.project: Path = more.get("project") or laptop.project("far", work=WORK)
        proxy: Proxy | None = more.get("proxy")
        place = ("--address", "127.0.0.1", "--port", str(proxy.port)) if proxy else ("--address", host.address)
        tag = more.get("image") or (host.engine.image if host.engine else None)
        image = ("--image", tag) if tag else ()
        attached = laptop.mlw(
            *("computetarget", "attach", kind, "--name", self.name, *place, "--username", host.user, *image),
            *("--private-key-file", str(host.key), "--host-key", host.host_key_fingerprint, *more.get("attach", ())),
            cwd=self.project,
        )
        assert attached.code == 0, attached
        if kind == "remotedocker" and not more.get("managed"):  # most tests need no packages
            compute = self.project / "aml_config" / f"{self.name}.compute"
            compute.write_text(compute.read_text() + "userManagedEnvironment: true\n")

    # -- the command line -----------------------------------------------------------------------------------------
    def mlw(self, *arguments: str, **more: Any) -> Done:
        return self.laptop.mlw(*arguments, cwd=self.project, **more)

    def submit_arguments(self, *arguments: str) -> tuple[str, ...]:
        return ("submit", "-c", self.name, *arguments)

    def submit(self, *arguments: str, **more: Any) -> Done:
        return self.mlw(*self.submit_arguments(*arguments), **more)

    def detach(self, *arguments: str, **more: Any) -> str:
        """Submit with --detach and return the run ID."""
        done = self.submit("--detach", *arguments, **more)
        assert done.code == 0, done
        return done.run

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        return self.laptop.start(*arguments, cwd=self.project, **more)

    def ps(self) -> list[dict[str, Any]]:
        done = self.mlw("ps", "-o", "json")
        assert done.code == 0, done
        return list(json.loads(done.out))

    def runs(self) -> list[dict[str, Any]]:
        done = self.mlw("history", "list", "-o", "json")
        assert done.code == 0, done
        return list(json.loads(done.out))

    # -- the machine ----------------------------------------------------------------------------------------------
    @property
    def home(self) -> Path:
        """The home folder as the script sees it."""
        if self.kind == "remote":
            return self.host.home
        homes = self.host.home / ".mlw" / "homes"  # created when the first run is prepared
        wait_until(lambda: homes.is_dir() and any(homes.iterdir()), "the home of containers")
        [folder] = homes.iterdir()
        return folder

    def target_folder(self, run: str) -> Path:
        return self.host.home / ".mlw" / "runs" / run

    def write(self, name: str, text: str) -> None:
        """Write a script into the project."""
        (self.project / name).write_text(text)

    def release(self) -> None:
        """Let scripts that print ticks finish."""
        (self.home / "go").touch()

    def await_ticks(self, run: str) -> None:
        wait_until(lambda: b"tick 3\n" in content(self.target_folder(run) / "log"), "the first words of the run")

    def await_end(self, run: str) -> None:
        wait_until(lambda: '"finished"' in read(self.target_folder(run) / "events.jsonl"), "the end of the run", 60)

    def count(self, event: str, key: str) -> int:
        """Return how often the script recorded this entry."""
        return read(self.home / "observed").splitlines().count(f"{event} {key}")

    # -- checks ---------------------------------------------------------------------------------------------------
    def assert_complete(self, run: str, key: str) -> dict[str, Any]:
        """Check that the run executed once and succeeded, and that the local log and outputs match the remote ones."""
        record = self.laptop.info(run)
        assert (record["status"], record["ending"]) == ("Completed", "succeeded"), record
        assert record["contact"] == "in contact", record
        assert (self.count("start", key), self.count("end", key)) == (1, 1)
        local_folder, remote_folder = self.laptop.folder(run), self.target_folder(run)
        assert digest(local_folder / "log") == digest(remote_folder / "log")
        assert content(local_folder / "log").endswith(final_output(key))
        self.assert_outputs_fetched(run)
        return record

    def assert_outputs_fetched(self, run: str) -> int:
        """Check that every output was fetched unchanged and that no partial files remain."""
        local_folder, remote_folder = self.laptop.folder(run) / "work/outputs", self.target_folder(run) / "work/outputs"
        names = sorted(str(path.relative_to(remote_folder)) for path in remote_folder.rglob("*") if path.is_file())
        assert (
            sorted(str(path.relative_to(local_folder)) for path in local_folder.rglob("*") if path.is_file()) == names
        )
        assert [name for name in names if digest(local_folder / name) != digest(remote_folder / name)] == []
        return len(names)


class SharedTarget:
    """A laptop and a machine that is attached to it, created once for several tests.

    ``reset`` restores the state after the attach.
    """

    def __init__(self, place: Path, host: Machine, kind: str) -> None:
        self._place, self._saved = place / "laptop", place / "kept"
        self._place.mkdir()
        self._target = RemoteTarget(Laptop(self._place), host, kind)
        self.end()
        self._target.laptop.runtime.mkdir(mode=0o700)
        self._saved.mkdir()
        for name in ("home", "store"):
            copy_folder(self._place / name, self._saved / name)
        copy_folder(host.home, self._saved / "there")
        # The first run compiles mlw's bytecode on the machine. Save that bytecode, but no other result of the run.
        first = self._target.submit("work.py", "first")
        assert first.code == 0, first
        shutil.rmtree(self._saved / "there" / ".mlw" / "lib")
        copy_folder(host.home / ".mlw" / "lib", self._saved / "there" / ".mlw" / "lib")

    def reset(self) -> RemoteTarget:
        """Restore the state after the attach and return the target for a test."""
        self.end()
        shutil.rmtree(self._place)
        self._place.mkdir()
        remote = copy.copy(self._target)
        remote.laptop = Laptop(self._place)
        for name in ("home", "store"):
            copy_folder(self._saved / name, self._place / name)
        remote.host.reset(self._saved / "there")
        return remote

    def close(self) -> None:
        self.end()
        self._target.host.close()

    def end(self) -> None:
        """End all processes and connections of laptop and machine."""
        end_processes(self._place)
        self._target.host.end_processes()
        shutil.rmtree(self._target.laptop.runtime, ignore_errors=True)


def copy_folder(source: Path, to: Path) -> None:
    """Copy a folder with owners, times, and links."""
    call("cp", "-aT", str(source), str(to))


@contextmanager
def second_laptop(place: Path) -> Iterator[Laptop]:
    """Create a second laptop, for the same user or another one."""
    place.mkdir()
    laptop = Laptop(place)
    try:
        yield laptop
    finally:
        end_processes(place)
        shutil.rmtree(laptop.runtime, ignore_errors=True)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def ticks(log: bytes) -> list[int]:
    """Return the tick numbers in the order of the log."""
    whole = log[: log.rfind(b"\n") + 1]  # the last line may be incomplete
    return [int(line.split()[1]) for line in whole.splitlines() if line.startswith(b"tick ")]
