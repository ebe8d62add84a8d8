"""How much folders take on the disk, and how much their end would free."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Dict, Iterator, Tuple


class Tally:
    """Bytes on the disk, files with several names (hard links) counted once: those of caches and of other environments.

    ``own`` is what would be freed if all went that was added: files that have no name elsewhere.
    """

    def __init__(self) -> None:
        self.size = 0
        self.own = 0
        self._seen: Dict[Tuple[int, int], int] = {}

    def add(self, *paths: str) -> Tuple[int, int]:
        """By how much size and own grew."""
        before = self.size, self.own
        for path in paths:
            for facts in _facts(path):
                self._count(facts)
        return self.size - before[0], self.own - before[1]

    def _count(self, facts: os.stat_result) -> None:
        taken = getattr(facts, "st_blocks", facts.st_size // 512 + 1) * 512
        if facts.st_nlink < 2 or stat.S_ISDIR(facts.st_mode):
            self.size += taken
            self.own += taken
            return
        key = facts.st_dev, facts.st_ino
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if seen == 1:
            self.size += taken
        if seen == facts.st_nlink:
            self.own += taken


def _facts(path: str) -> Iterator[os.stat_result]:
    """Of all that is there, links not followed; what vanishes meanwhile is not there."""
    pending = [path]
    while pending:
        place = pending.pop()
        try:
            facts = os.lstat(place)
            yield facts
            if not stat.S_ISDIR(facts.st_mode):
                continue
            with os.scandir(place) as listing:
                for entry in listing:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        yield entry.stat(follow_symlinks=False)
        except OSError:
            continue
