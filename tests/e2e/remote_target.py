"""A project, a laptop and a machine elsewhere: what the tests of runs far away share."""

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

# The observer is the script itself: it writes where the product does not look. What it is told to do comes as words.
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


def last_words(key: str) -> bytes:
    """What the script prints at its end, made up here a second time."""
    return "".join(f"{key} {number}\n" for number in range(20)).encode()


class Away:
    """One target, attached to one project of one laptop. ``there`` is where a run is on the machine."""

    def __init__(self, laptop: Laptop, host: Machine, kind: str = "remote", **more: Any) -> None:
        self.laptop, self.host, self.kind = laptop, host, kind
        self.name = str(more.get("name", "box"))
        self.project: Path = more.get("project") or laptop.project("far", work=WORK)
        door: Proxy | None = more.get("door")
        place = ("--address", "127.0.0.1", "--port", str(door.port)) if door else ("--address", host.address)
        tag = more.get("image") or (host.engine.image if host.engine else None)
        image = ("--image", tag) if tag else ()
        attached = laptop.mlw(
            *("computetarget", "attach", kind, "--name", self.name, *place, "--username", host.user, *image),
            *("--private-key-file", str(host.key), "--host-key", host.host_key_fingerprint, *more.get("attach", ())),
            cwd=self.project,
        )
        assert attached.code == 0, attached
        if kind == "remotedocker" and not more.get("managed"):  # what most tests are about needs no packages
            compute = self.project / "aml_config" / f"{self.name}.compute"
            compute.write_text(compute.read_text() + "userManagedEnvironment: true\n")

    # -- the command line -----------------------------------------------------------------------------------------
    def mlw(self, *words: str, **more: Any) -> Done:
        return self.laptop.mlw(*words, cwd=self.project, **more)

    def words(self, *words: str) -> tuple[str, ...]:
        return ("submit", "-c", self.name, *words)

    def submit(self, *words: str, **more: Any) -> Done:
        return self.mlw(*self.words(*words), **more)

    def detach(self, *words: str, **more: Any) -> str:
        """The id of a run that was left to itself."""
        done = self.submit("--detach", *words, **more)
        assert done.code == 0, done
        return done.run

    def start(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        return self.laptop.start(*words, cwd=self.project, **more)

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
        """What the script takes for its home."""
        if self.kind == "remote":
            return self.host.home
        homes = self.host.home / ".mlw" / "homes"  # made when the first run is prepared
        wait_until(lambda: homes.is_dir() and any(homes.iterdir()), "the home of containers")
        [folder] = homes.iterdir()
        return folder

    def there(self, run: str) -> Path:
        return self.host.home / ".mlw" / "runs" / run

    def write(self, name: str, text: str) -> None:
        """A script of the project."""
        (self.project / name).write_text(text)

    def let_go(self) -> None:
        """Scripts that tick come to their end."""
        (self.home / "go").touch()

    def await_ticks(self, run: str) -> None:
        wait_until(lambda: b"tick 3\n" in content(self.there(run) / "log"), "the first words of the run")

    def await_end(self, run: str) -> None:
        wait_until(lambda: '"finished"' in read(self.there(run) / "events.jsonl"), "the end of the run", 60)

    def count(self, word: str, key: str) -> int:
        """How often the script said so itself."""
        return read(self.home / "observed").splitlines().count(f"{word} {key}")

    # -- what must be true ----------------------------------------------------------------------------------------
    def must_be_whole(self, run: str, key: str) -> dict[str, Any]:
        """It happened once, ended well, and log and outputs are here as they are there."""
        record = self.laptop.info(run)
        assert (record["status"], record["ending"]) == ("Completed", "succeeded"), record
        assert record["contact"] == "in contact", record
        assert (self.count("start", key), self.count("end", key)) == (1, 1)
        here, there = self.laptop.folder(run), self.there(run)
        assert digest(here / "log") == digest(there / "log")
        assert content(here / "log").endswith(last_words(key))
        self.must_have_outputs(run)
        return record

    def must_have_outputs(self, run: str) -> int:
        """Every output is at home, as it is there; nothing half done is beside it."""
        here, there = self.laptop.folder(run) / "work/outputs", self.there(run) / "work/outputs"
        names = sorted(str(path.relative_to(there)) for path in there.rglob("*") if path.is_file())
        assert sorted(str(path.relative_to(here)) for path in here.rglob("*") if path.is_file()) == names
        assert [name for name in names if digest(here / name) != digest(there / name)] == []
        return len(names)


class SharedTarget:
    """A laptop that is attached to a machine, made once. Every test gets both as they were after the attach."""

    def __init__(self, place: Path, host: Machine, kind: str) -> None:
        self._place, self._kept = place / "laptop", place / "kept"
        self._place.mkdir()
        self._away = Away(Laptop(self._place), host, kind)
        self.end()
        self._away.laptop.runtime.mkdir(mode=0o700)
        self._kept.mkdir()
        for name in ("home", "store"):
            copy_folder(self._place / name, self._kept / name)
        copy_folder(host.home, self._kept / "there")
        # The program on the machine is compiled by its first run: that is kept, too, and nothing else of the run.
        first = self._away.submit("work.py", "first")
        assert first.code == 0, first
        shutil.rmtree(self._kept / "there" / ".mlw" / "lib")
        copy_folder(host.home / ".mlw" / "lib", self._kept / "there" / ".mlw" / "lib")

    def renew(self) -> Away:
        """For a test."""
        self.end()
        shutil.rmtree(self._place)
        self._place.mkdir()
        away = copy.copy(self._away)
        away.laptop = Laptop(self._place)
        for name in ("home", "store"):
            copy_folder(self._kept / name, self._place / name)
        away.host.renew(self._kept / "there")
        return away

    def close(self) -> None:
        self.end()
        self._away.host.close()

    def end(self) -> None:
        """All processes and connections of laptop and machine."""
        end_processes(self._place)
        self._away.host.end_processes()
        shutil.rmtree(self._away.laptop.runtime, ignore_errors=True)


def copy_folder(source: Path, to: Path) -> None:
    """With owners, times and links."""
    call("cp", "-aT", str(source), str(to))


@contextmanager
def second_laptop(place: Path) -> Iterator[Laptop]:
    """Of somebody else, or the same person's other one."""
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
    """The numbers in the order in which they were shown."""
    whole = log[: log.rfind(b"\n") + 1]  # the last line may just be on its way
    return [int(line.split()[1]) for line in whole.splitlines() if line.startswith(b"tick ")]
