"""Whether the code of a run is here. Asked before every start, and therefore light: most often a note says so."""

from __future__ import annotations

import os

from . import machine
from .folder import Root


def has_code(root: Root, digest: str) -> bool:
    """Whether the snapshot is here, whole.

    A power cut can lose what was written last, so the blobs are looked at once in every boot of the machine.
    """
    if is_noted(root, digest):
        return True
    from .receive import is_whole  # noqa: PLC0415 - hashing loads megabytes that a supervisor made by us would hold

    if not is_whole(root, digest):
        return False
    note_whole(root, digest)
    return True


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
