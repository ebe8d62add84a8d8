"""Read the code of a run from the content store: its manifest and verified file content."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import SnapshotError
from ..model import Run
from ..remote.shared.folder_tree import NEW, READ, portable
from ..remote.shared.layout import Root
from ..remote.shared.snapshot_manifest import read_manifest

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Code:
    """Content of a snapshot. Every path was checked to be inside the snapshot."""

    files: dict[str, tuple[str, int, int]]  # path → sha256, size, mode
    links: dict[str, str]
    folders: tuple[str, ...]  # empty folders


def read_code(root: Root, run: Run) -> Code:
    try:
        manifest = read_manifest(root.snapshot(run.spec.snapshot))
    except FileNotFoundError:
        raise SnapshotError(f"the code of run {run.id} is no longer in the content store") from None
    except OSError as error:
        raise SnapshotError(f"cannot read the code of run {run.id}: {error.strerror}") from error
    return Code(
        {path: (sha256, size, mode) for path, sha256, size, mode in manifest["files"]},
        dict(manifest["links"]),
        tuple(manifest["folders"]),
    )


def read_blob(root: Root, sha256: str, size: int, take: Callable[[bytes], object]) -> None:
    """Pass a stored file to ``take`` in chunks. Raises ``SnapshotError`` if its digest is wrong."""
    digest = hashlib.sha256()
    try:
        with open(os.open(root.blob(sha256), READ), "rb", buffering=0) as file:
            while data := file.read(_CHUNK):
                digest.update(data)
                take(data)
    except FileNotFoundError:
        raise SnapshotError(f"a file of the run is missing from the content store: {root.blob(sha256)}") from None
    if digest.hexdigest() != sha256:
        raise SnapshotError(f"a file in the content store is damaged: {root.blob(sha256)}")


def copy_blob(root: Root, entry: tuple[str, int, int], folder: int, name: str) -> None:
    """Create a file with the content and mode of a stored file."""
    sha256, size, mode = entry
    with open(os.open(name, NEW, 0o600, dir_fd=folder), "wb") as file:
        read_blob(root, sha256, size, file.write)
        os.fchmod(file.fileno(), mode)


def has_blob(root: Root, sha256: str, size: int) -> bool:
    try:
        return os.lstat(root.blob(sha256)).st_size == size
    except OSError:
        return False


def has_link(root: Root, path: str, text: str | None) -> bool:
    """Return whether any snapshot contains this link. Searches raw text: parsing manifests is slow."""
    if text is None:
        return False
    encoded = json.dumps([portable(path), portable(text)], separators=(",", ":")).encode("ascii")
    try:
        names = os.listdir(root.snapshots)
    except FileNotFoundError:
        return False
    for name in names:
        with open(os.open(os.path.join(root.snapshots, name), READ), "rb") as file:
            if encoded in file.read():
                return True
    return False
