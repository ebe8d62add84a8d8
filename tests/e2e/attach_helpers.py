"""Helpers for attach tests: build the command, compare file trees, and watch for leaked secrets."""

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

SECRET = f"canary-{os.urandom(8).hex()}"  # random, because copies of this file would contain a constant
SCRIPT = "import socket\nprint('on', socket.gethostname())\n"
ROOT_SSH = Path("/root/.ssh")  # ssh uses this folder regardless of HOME


def attach_arguments(host: Machine, kind: str = "remote", name: str = "box", **more: str) -> list[str]:
    """Return the command-line arguments, with the host key fingerprint unless `key=""`."""
    arguments = ["computetarget", "attach", kind, "--name", name, "--address", more.get("address", host.address)]
    arguments += ["--username", host.user]
    key = more.get("key", host.host_key_fingerprint)
    return [*arguments, *(["--host-key", key] if key else [])]


def attach_with_password(laptop: Laptop, project: Path, host: Machine, *options: str, **more: str) -> Done:
    return laptop.mlw(*attach_arguments(host, **more), "--password-stdin", *options, cwd=project, input=f"{SECRET}\n")


def attach_target(laptop: Laptop, host: Machine, project: Path, *options: str, **more: str) -> Done:
    done = attach_with_password(laptop, project, host, *options, **more)
    assert done.code == 0, done
    return done


def submit_and_check(laptop: Laptop, project: Path, host: Machine, name: str = "box") -> Done:
    done = laptop.mlw("submit", "-c", name, "train.py", cwd=project)
    assert done.code == 0, done
    assert done.out == f"on {host.name}\n"
    return done


def tree(*places: Path) -> dict[str, object]:
    """Map every path below the given places to its type and content. Times are excluded because reads change some."""
    content_by_path: dict[str, object] = {}
    for place in places:
        for path in [place, *place.rglob("*")] if place.exists() else []:
            what = path.lstat()
            if stat.S_ISLNK(what.st_mode):
                content_by_path[str(path)] = os.readlink(path)
            elif stat.S_ISREG(what.st_mode):
                content_by_path[str(path)] = (oct(what.st_mode), what.st_uid, path.read_bytes())
            else:
                content_by_path[str(path)] = (oct(what.st_mode), what.st_uid)
    return content_by_path


def attach_state(laptop: Laptop, host: Machine, project: Path) -> dict[str, object]:
    """Return all files that an attach could change: project, ~/.ssh, target records, TMPDIR, and the remote home."""
    local_places = (project, laptop.home / ".ssh", laptop.store / "targets", ROOT_SSH, Path(laptop.env["TMPDIR"]))
    return tree(*local_places, host.home)


def new_project(laptop: Laptop) -> Path:
    """Create a project, and a temporary folder whose path is short because it must fit into socket addresses."""
    laptop.env["TMPDIR"] = str(laptop.runtime / "tmp")
    (laptop.runtime / "tmp").mkdir()
    return laptop.project("demo", train=SCRIPT)


@contextmanager
def watch_for_secrets(*secrets: str) -> Iterator[list[str]]:
    """Search command lines and environments of all processes for secrets while the block runs.

    The command line of mlw itself is excluded.
    """
    leaks: list[str] = []
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
                leaks.extend(f"{pid}: {line!r}" for secret in secrets for text in texts if secret.encode() in text)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield leaks
    finally:
        over.set()
        thread.join()


def files_containing(secret: str, *places: Path) -> list[Path]:
    return [
        path
        for place in places
        for path in place.rglob("*")
        if path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes()
    ]
