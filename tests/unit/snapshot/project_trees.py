"""Helpers for snapshot tests: a folder with a project and a store, and functions that compare folder trees."""

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
from mlworkbench.remote.working_copy import create_working_copy, recycle_working_copy
from mlworkbench.snapshot.take_snapshot import take

PROJECT = "p1"
SOURCE = Path(__file__).parents[3] / "src"
Tree = dict[bytes, tuple[Any, ...]]


class SnapshotWorkspace:
    """A folder with a project, a content store, and a cache of digests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.root = Root(os.fspath(folder / "home"))
        self.cache = folder / "cache" / "p1.json"
        self.runs = 0

    def write(self, path: str | bytes, data: bytes | str = b"x", *, old: bool = True, mode: int = 0o644) -> bytes:
        """Write a file of the project. By default, it is old enough for its digest to be cached."""
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
        create_working_copy(self.root, digest, PROJECT, run)
        return run

    def recycle(self, digest: str, run: RunFolder) -> None:
        recycle_working_copy(self.root, digest, PROJECT, run)

    def manifest(self, digest: str) -> dict[str, Any]:
        data = Path(self.root.snapshot(digest)).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        manifest: dict[str, Any] = json.loads(data)
        return manifest

    def paths(self, digest: str) -> list[str]:
        return [file[0] for file in self.manifest(digest)["files"]]

    def check_store(self) -> int:
        """Check the content, mode, and link count of every blob. Return the number of blobs."""
        blobs = [Path(folder, name) for folder, _, names in os.walk(self.root.blobs) for name in names]
        for blob in blobs:
            assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.parent.name + blob.name
            assert stat.S_IMODE(blob.stat().st_mode) == 0o600
            assert blob.stat().st_nlink == 1
        return len(blobs)


def read_tree(folder: str | Path, *, outputs: bool = True) -> Tree:
    """Return the entries of a folder tree: files with content and mode, links with their target, and empty folders."""
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
    """Fork without the warning of newer Python versions about threads: the child does not use pytest's threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(action: Callable[[], str]) -> str:
    """Run ``action`` in a forked process and return its result, or "killed" if the process is killed."""
    sys.stdout.flush()
    reader, writer = os.pipe()
    child = fork()
    if child == 0:
        try:
            os.close(reader)
            try:
                text = action()
            except BaseException as error:  # noqa: BLE001 - the parent process reports any error
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
    """Become an unprivileged user, to whom file permissions apply, and make this user the owner of ``folder``."""
    if os.getuid() == 0:
        for path, folders, files in os.walk(folder):
            for name in [path, *(os.path.join(path, name) for name in folders + files)]:
                os.chown(name, 65534, 65534, follow_symlinks=False)
        os.setgid(65534)
        os.setuid(65534)
