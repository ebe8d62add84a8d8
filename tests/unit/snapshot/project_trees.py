"""Projects, stores and runs for the tests of snapshots: a place to work in, and a way to compare folder trees."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlworkbench.model import Snapshot
from mlworkbench.remote.shared.layout import Root, RunFolder
from mlworkbench.remote.workcopy import place, recycle
from mlworkbench.snapshot.take import take

PROJECT = "p1"
SOURCE = Path(__file__).parents[2] / "src"
Tree = dict[bytes, tuple[Any, ...]]


class Desk:
    """A project, a store and a cache in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.root = Root(os.fspath(folder / "home"))
        self.cache = folder / "cache" / "p1.json"
        self.runs = 0

    def write(self, path: str | bytes, data: bytes | str = b"x", *, old: bool = True, mode: int = 0o644) -> bytes:
        """A file of the project; an old one, so that it can be trusted the next time it is looked at."""
        name = os.path.join(os.fsencode(self.project), os.fsencode(path))
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        os.chmod(name, mode)
        if old:
            os.utime(name, (1_500_000_000, 1_500_000_000))
        return name

    def take(self, progress: Callable[[int, int], None] | None = None) -> Snapshot:
        return take(self.project, PROJECT, self.root, self.cache, progress)

    def run(self) -> RunFolder:
        self.runs += 1
        run = self.root.run(f"run-{self.runs}")
        os.makedirs(run.path)
        return run

    def place(self, digest: str) -> RunFolder:
        run = self.run()
        place(self.root, digest, PROJECT, run)
        return run

    def recycle(self, digest: str, run: RunFolder) -> None:
        recycle(self.root, digest, PROJECT, run)

    def manifest(self, digest: str) -> dict[str, Any]:
        data = Path(self.root.snapshot(digest)).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        manifest: dict[str, Any] = json.loads(data)
        return manifest

    def paths(self, digest: str) -> list[str]:
        return [file[0] for file in self.manifest(digest)["files"]]

    def check_store(self) -> int:
        """Every blob holds what its name says; the number of blobs."""
        blobs = [Path(folder, name) for folder, _, names in os.walk(self.root.blobs) for name in names]
        for blob in blobs:
            assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.parent.name + blob.name
            assert stat.S_IMODE(blob.stat().st_mode) == 0o600
            assert blob.stat().st_nlink == 1
        return len(blobs)


def read_tree(folder: str | Path, *, outputs: bool = True) -> Tree:
    """Everything in a folder: files with content and mode, links with their text, empty folders."""
    top = os.fsencode(folder)
    found: Tree = {}
    for path, folders, files in os.walk(top):
        for name in folders + files:
            full = os.path.join(path, name)
            key = os.path.relpath(full, top)
            if key.split(b"/")[0] == b"outputs" and not outputs:
                continue
            status = os.lstat(full)
            if stat.S_ISLNK(status.st_mode):
                found[key] = ("link", os.readlink(full))
            elif stat.S_ISREG(status.st_mode):
                with open(full, "rb") as file:
                    found[key] = ("file", file.read(), 0o755 if status.st_mode & 0o100 else 0o644)
            elif stat.S_ISDIR(status.st_mode) and not os.listdir(full):
                found[key] = ("folder",)
    return found


def fork() -> int:
    """A test may run beside threads of pytest, of which newer Pythons warn; the child never touches them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(action: Callable[[], str]) -> str:
    """What ``action`` answers in a forked process; "killed" when the process does not live to tell."""
    sys.stdout.flush()
    reader, writer = os.pipe()
    child = fork()
    if child == 0:
        try:
            os.close(reader)
            try:
                text = action()
            except BaseException as error:  # noqa: BLE001 - whatever it is, the parent must hear of it
                text = f"{type(error).__name__}: {error}"
            os.write(writer, text.encode("utf-8", "backslashreplace"))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read().decode()
    os.waitpid(child, 0)
    return text or "killed"


def drop_privileges(folder: Path) -> None:
    """Become a user to whom permissions apply; ``folder`` and all in it are handed over first."""
    if os.getuid() == 0:
        for path, folders, files in os.walk(folder):
            for name in [path, *(os.path.join(path, name) for name in folders + files)]:
                os.chown(name, 65534, 65534, follow_symlinks=False)
        os.setgid(65534)
        os.setuid(65534)
