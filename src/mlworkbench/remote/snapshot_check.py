"""Whether the code of a run is here. Asked before every start, and therefore light: most often a note says so."""

from __future__ import annotations

import os

from .shared import machine
from .shared.layout import Root
from .shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    Blob = Tuple[str, int]  # digest and size

LARGE = 1024 * 1024  # a blob from this size on is written as it comes, and what came before a cut is kept


def has_code(root: Root, digest: str) -> bool:
    """Whether the snapshot is here, whole.

    A power cut can lose what was written last, so the blobs are looked at once in every boot of the machine.
    """
    if is_noted(root, digest):
        return True
    if not is_whole(root, digest):
        return False
    note_whole(root, digest)
    return True


def is_whole(root: Root, digest: str) -> bool:
    """Whether the snapshot and all its blobs are here and sound."""
    try:
        with open(root.snapshot(digest), "rb") as file:
            blobs = blobs_of(parse_json(file.read()))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return all(_whole(root.blob(sha256), sha256, size) for sha256, size in blobs)


def blobs_of(manifest: Dict[str, Any]) -> List[Blob]:
    """Each content once, in the order of the manifest: both ends count by it."""
    found: Dict[str, int] = {}
    for _, sha256, size, _ in manifest["files"]:
        if not isinstance(size, int) or size < 0:
            raise ValueError("invalid file size %a" % size)
        found.setdefault(check_digest(sha256), size)
    return list(found.items())


def _whole(path: str, sha256: str, size: int) -> bool:
    """Large blobs were put on disk before they got their name, so their size is enough."""
    import hashlib  # noqa: PLC0415 - loads megabytes that a supervisor made by us would hold

    try:
        if os.stat(path).st_size != size:
            return False
        if size >= LARGE:
            return True
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == sha256
    except OSError:
        return False


def is_noted(root: Root, digest: str) -> bool:
    """Whether the snapshot was found whole in this boot, or came whole."""
    boot = machine.identity()["boot_id"]
    try:
        with open(_note(root, digest), "rb") as file:
            known = file.read().decode("ascii", "replace")
    except OSError:
        return False
    return bool(boot) and known == boot and os.path.exists(root.snapshot(digest))


def note_whole(root: Root, digest: str) -> None:
    """In this boot the snapshot was found whole, or came whole."""
    _write_note(_note(root, digest), machine.identity()["boot_id"])


def _note(root: Root, digest: str) -> str:
    return os.path.join(root.snapshots, check_digest(digest) + ".checked")


def _write_note(path: str, boot: str) -> None:
    part = "%s.%s.part" % (path, os.urandom(4).hex())  # two uploads of the same code may end at the same moment
    with open(part, "wb") as file:
        file.write(boot.encode("ascii", "replace"))
    os.replace(part, path)


def check_digest(text: str) -> str:
    if len(text) != 64 or text.strip("0123456789abcdef"):
        raise ValueError("invalid digest %a" % text[:80])
    return text
