"""Kinds of entries in the list of outputs."""

from __future__ import annotations

LINK = "link"  # recreated wherever the outputs are copied
FOLDER = "link to a folder"
NOT_COPIED = "link to a file that cannot be copied"
OUTSIDE = "link that leads out of the working copy"
BROKEN = "broken link"
SPECIAL_FILE = "link to a special file"
VANISHED = "vanished"
# Entries that are not regular files, or have no digest.
NOT_HASHED, UNREADABLE, TOO_LONG, DEVICE = "not hashed", "unreadable", "path too long", "device"
FIFO, SOCKET = "fifo", "socket"
LEFT_OUT = frozenset(
    (NOT_HASHED, UNREADABLE, TOO_LONG, FIFO, SOCKET, DEVICE, FOLDER, NOT_COPIED, OUTSIDE, BROKEN, SPECIAL_FILE)
)
# Entries that are not outputs and are never collected.
UNCOLLECTED = (LEFT_OUT - {NOT_HASHED}) | {VANISHED}
# Entries whose content stays in the run folder on the target and is never fetched.
ONLY_ON_TARGET = frozenset((UNREADABLE, TOO_LONG, FOLDER, NOT_COPIED))
