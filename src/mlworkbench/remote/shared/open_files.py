"""Files that a process has open."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Iterator


def open_files(pid: int, proc: str = "/proc") -> "Iterator[str]":
    """Yield what the process has open, as the kernel names it, such as a path or ``socket:[inode]``.

    Yield nothing if the process has ended or belongs to another user. Skip files that are closed in the meantime.
    """
    folder = "%s/%d/fd" % (proc, pid)
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink("%s/%s" % (folder, name))
        except OSError:
            continue
