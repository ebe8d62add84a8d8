"""Check whether the code of a run is present.

This runs before every start and must be fast. Usually, a marker already shows the result.
"""

from __future__ import annotations

import os

from .shared import machine
from .shared.layout import Root
from .shared.untrusted_json import parse_json

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    Blob = Tuple[str, int]  # SHA-256 digest and size

LARGE_BLOB = 1024 * 1024  # larger blobs are written as they arrive, and an interrupted upload can be resumed


def has_snapshot(root: Root, digest: str) -> bool:
    """Return whether the snapshot is complete.

    Because a power failure can lose recent writes, the blobs are checked once per boot.
    """
    if is_verified(root, digest):
        return True
    if not is_complete(root, digest):
        return False
    mark_verified(root, digest)
    return True


def is_complete(root: Root, digest: str) -> bool:
    """Return whether the snapshot and all its blobs are present and intact."""
    try:
        with open(root.snapshot(digest), "rb") as file:
            blobs = list_blobs(parse_json(file.read()))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return all(_is_intact(root.blob(sha256), sha256, size) for sha256, size in blobs)


def list_blobs(manifest: Dict[str, Any]) -> List[Blob]:
    """Return each blob once, in manifest order. Client and target use the same indices."""
    blobs: Dict[str, int] = {}
    for _, sha256, size, _ in manifest["files"]:
        if not isinstance(size, int) or size < 0:
            raise ValueError("invalid file size %a" % size)
        blobs.setdefault(check_digest(sha256), size)
    return list(blobs.items())


def _is_intact(path: str, sha256: str, size: int) -> bool:
    """Return whether a blob is intact.

    Large blobs are synced before they are renamed, so checking their size is sufficient.
    """
    import hashlib  # noqa: PLC0415 - large; a forked supervisor would keep it in memory

    try:
        if os.stat(path).st_size != size:
            return False
        if size >= LARGE_BLOB:
            return True
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == sha256
    except OSError:
        return False


def is_verified(root: Root, digest: str) -> bool:
    """Return whether the snapshot was verified or received since the last boot."""
    boot = machine.identity()["boot_id"]
    try:
        with open(_marker_path(root, digest), "rb") as file:
            recorded_boot = file.read().decode("ascii", "replace")
    except OSError:
        return False
    return bool(boot) and recorded_boot == boot and os.path.exists(root.snapshot(digest))


def mark_verified(root: Root, digest: str) -> None:
    """Record that the snapshot was verified or received since the last boot."""
    _write_marker(_marker_path(root, digest), machine.identity()["boot_id"])


def _marker_path(root: Root, digest: str) -> str:
    return os.path.join(root.snapshots, check_digest(digest) + ".checked")


def _write_marker(path: str, boot: str) -> None:
    temporary = "%s.%s.part" % (path, os.urandom(4).hex())  # two uploads of the same code may end at the same time
    with open(temporary, "wb") as file:
        file.write(boot.encode("ascii", "replace"))
    os.replace(temporary, path)


def check_digest(text: str) -> str:
    if len(text) != 64 or text.strip("0123456789abcdef"):
        raise ValueError("invalid digest %a" % text[:80])
    return text
