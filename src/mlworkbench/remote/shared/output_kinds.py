"""Kinds of entries in the list of a run's outputs."""

from __future__ import annotations

LINK = "link"  # made again wherever the outputs go
FOLDER = "link to a folder"
NOT_COPIED = "link to a file that cannot be copied"
OUTSIDE = "link that leads out of the working copy"
BROKEN = "broken link"
SPECIAL_FILE = "link to a special file"
VANISHED = "vanished"
# Kinds of entries that are no files, or have no digest.
NOT_HASHED, UNREADABLE, TOO_LONG, DEVICE = "not hashed", "unreadable", "path too long", "device"
FIFO, SOCKET = "fifo", "socket"
LEFT_OUT = frozenset(
    (NOT_HASHED, UNREADABLE, TOO_LONG, FIFO, SOCKET, DEVICE, FOLDER, NOT_COPIED, OUTSIDE, BROKEN, SPECIAL_FILE)
)
# Entries that are no outputs: nothing of them is collected.
UNCOLLECTED = (LEFT_OUT - {NOT_HASHED}) | {VANISHED}
# What such an entry stands for is in the run folder on the target, and never comes home.
ONLY_THERE = frozenset((UNREADABLE, TOO_LONG, FOLDER, NOT_COPIED))
