"""Attaching machines in tests: the command, whole trees of files to compare, and a look-out for secrets."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import Done
from tests.machines.laptop import Laptop
from tests.machines.machine import Machine

SECRET = f"canary-{os.urandom(8).hex()}"  # in no source: copies of them may lie about
SCRIPT = "import socket\nprint('on', socket.gethostname())\n"
ROOT_SSH = Path("/root/.ssh")  # where ssh itself looks, whatever HOME says


def words(host: Machine, kind: str = "remote", name: str = "box", **more: str) -> list[str]:
    """The command line, with the machine's fingerprint unless `key=""`."""
    made = ["computetarget", "attach", kind, "--name", name, "--address", more.get("address", host.address)]
    made += ["--username", host.user]
    key = more.get("key", host.host_key_fingerprint)
    return [*made, *(["--host-key", key] if key else [])]


def by_password(laptop: Laptop, project: Path, host: Machine, *options: str, **more: str) -> Done:
    return laptop.mlw(*words(host, **more), "--password-stdin", *options, cwd=project, input=f"{SECRET}\n")


def attached(laptop: Laptop, host: Machine, project: Path, *options: str, **more: str) -> Done:
    done = by_password(laptop, project, host, *options, **more)
    assert done.code == 0, done
    return done


def runs_there(laptop: Laptop, project: Path, host: Machine, name: str = "box") -> Done:
    done = laptop.mlw("submit", "-c", name, "train.py", cwd=project)
    assert done.code == 0, done
    assert done.out == f"on {host.name}\n"
    return done


def tree(*places: Path) -> dict[str, object]:
    """Every path below the places → what it is, to the last byte. Times are left out: looking changes some."""
    found: dict[str, object] = {}
    for place in places:
        for path in [place, *place.rglob("*")] if place.exists() else []:
            what = path.lstat()
            if stat.S_ISLNK(what.st_mode):
                found[str(path)] = os.readlink(path)
            elif stat.S_ISREG(what.st_mode):
                found[str(path)] = (oct(what.st_mode), what.st_uid, path.read_bytes())
            else:
                found[str(path)] = (oct(what.st_mode), what.st_uid)
    return found


def world(laptop: Laptop, host: Machine, project: Path) -> dict[str, object]:
    """All that an attach could change: the project, ~/.ssh, what mlw knows of machines, /tmp, the home there."""
    here = (project, laptop.home / ".ssh", laptop.store / "targets", ROOT_SSH, Path(laptop.env["TMPDIR"]))
    return tree(*here, host.home)


def new_project(laptop: Laptop) -> Path:
    """With a folder for temporary files that nobody else uses; its name is short, since sockets are made in it."""
    laptop.env["TMPDIR"] = str(laptop.runtime / "tmp")
    (laptop.runtime / "tmp").mkdir()
    return laptop.project("demo", train=SCRIPT)


@contextmanager
def watched(*secrets: str) -> Iterator[list[str]]:
    """Looks at command lines and environments of all processes, but mlw's own words, while the block runs."""
    found: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for pid in [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]:
                try:
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                    texts = [Path(f"/proc/{pid}/environ").read_bytes()]
                except OSError:
                    continue
                if b"/bin/mlw\0" not in line:
                    texts.append(line)
                found.extend(f"{pid}: {line!r}" for one in secrets for text in texts if one.encode() in text)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def files_with(secret: str, *places: Path) -> list[Path]:
    return [
        path
        for place in places
        for path in place.rglob("*")
        if path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes()
    ]
