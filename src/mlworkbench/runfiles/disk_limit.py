"""The room that files of another machine may take here: never the last of this disk, whatever that machine sends."""

from __future__ import annotations

import os

from ..errors import HistoryError

_RESERVE, _SHARE = 256 * 1024 * 1024, 0.05  # bytes that stay free; on a small disk this share of it


def require_room(folder: str, size: int, what: str) -> None:
    """Raise HistoryError unless the disk of ``folder``, which exists, has room for ``size`` more bytes."""
    if not hasattr(os, "statvfs"):  # Windows, where a full disk shows when it is written
        return
    free = free_bytes(folder) - reserve(folder)
    if size > free:
        from ..snapshot.notes import amount  # noqa: PLC0415 - for a message only

        raise HistoryError(
            f"{what} needs {amount(size)}, but the disk that holds {folder} has only {amount(max(0, free))} available",
            "free disk space and run the command again: it continues where it stopped",
            more="disk-full",
        )


def free_bytes(folder: str) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def reserve(folder: str) -> int:
    disk = os.statvfs(folder)
    return min(_RESERVE, int(disk.f_blocks * disk.f_frsize * _SHARE))
