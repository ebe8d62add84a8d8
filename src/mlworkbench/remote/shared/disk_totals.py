"""Disk usage of folders, and how much removing them would free."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict, Iterator, Tuple


class DiskUsage:
    """Disk usage in bytes. Files with several hard links are counted once.

    Caches and other environments contain such links. ``exclusive`` is the space that removing
    everything added would free: files without links elsewhere.
    """

    def __init__(self) -> None:
        self.size = 0
        self.exclusive = 0
        self._links_seen: Dict[Tuple[int, int], int] = {}

    def add(self, *paths: str) -> Tuple[int, int]:
        """Add folders or files. Return the increases of ``size`` and ``exclusive``."""
        before = self.size, self.exclusive
        for path in paths:
            for status in _walk_stats(path):
                self._count(status)
        return self.size - before[0], self.exclusive - before[1]

    def _count(self, status: os.stat_result) -> None:
        used = getattr(status, "st_blocks", status.st_size // 512 + 1) * 512
        if status.st_nlink < 2 or stat.S_ISDIR(status.st_mode):
            self.size += used
            self.exclusive += used
            return
        key = status.st_dev, status.st_ino
        links = self._links_seen[key] = self._links_seen.get(key, 0) + 1
        if links == 1:
            self.size += used
        if links == status.st_nlink:
            self.exclusive += used


def _walk_stats(path: str) -> Iterator[os.stat_result]:
    """Yield the status of everything below a path. Skip vanished files, and do not follow links."""
    pending = [path]
    while pending:
        current = pending.pop()
        try:
            status = os.lstat(current)
            yield status
            if not stat.S_ISDIR(status.st_mode):
                continue
            with os.scandir(current) as listing:
                for entry in listing:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        yield entry.stat(follow_symlinks=False)
        except OSError:
            continue
