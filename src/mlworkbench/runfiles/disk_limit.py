"""Limit on the disk space used by files from other machines. Part of the disk always stays free."""

from __future__ import annotations

import os

from ..errors import HistoryError

_RESERVE, _SHARE = 256 * 1024 * 1024, 0.05  # bytes to keep free, or the fraction of a small disk


def require_room(folder: str, size: int, what: str) -> None:
    """Raise ``HistoryError`` unless the disk that holds ``folder`` has room for ``size`` more bytes."""
    if not hasattr(os, "statvfs"):  # Windows: writes fail when the disk is full
        return
    free = free_bytes(folder) - reserve(folder)
    if size > free:
        from ..snapshot.snapshot_warnings import format_size  # noqa: PLC0415 - for a message only

        available = format_size(max(0, free))
        raise HistoryError(
            f"{what} needs {format_size(size)}, but the disk that holds {folder} has only {available} available",
            "free disk space and run the command again: it continues where it stopped",
            more="disk-full",
        )


def free_bytes(folder: str) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def reserve(folder: str) -> int:
    disk = os.statvfs(folder)
    return min(_RESERVE, int(disk.f_blocks * disk.f_frsize * _SHARE))
