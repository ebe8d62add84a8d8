"""Find which rank of a run wrote a TensorBoard event file: its name contains a process ID."""

from __future__ import annotations

import os
import re

from ..ranks import read_ranks

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict, Iterable, List

    from ..shared.layout import RunFolder

MAX_RANKS = 128  # event files of higher ranks are not read: each rank needs a file of its own
_PID = re.compile(r"\.(\d{1,10})\.\d+(\.v2)?$")  # events.out.tfevents.<time>.<host>.<process ID>.<number>


class EventFileRanks:
    """The ranks of a run's event files. A file of an unknown process belongs to rank 0."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._ranks: Dict[str, int] = {}

    def find(self, name: str) -> int:
        return self._ranks.get(name, 0)

    def update(self, names: Iterable[str]) -> List[int]:
        """Find the ranks of new files. Return the ranks that have written any."""
        new = [name for name in names if name not in self._ranks]
        if new:
            attempts = (self._run.at(number) for number in range(1, self._run.attempt + 1))
            records = (record for attempt in attempts for record in read_ranks(attempt))
            ranks = {record["pid"]: record["rank"] for record in records if record["pid"]}
            for name in new:
                match = _PID.search(os.path.basename(name))
                self._ranks[name] = ranks.get(int(match.group(1)), 0) if match else 0
        return sorted({rank for rank in self._ranks.values() if 0 < rank < MAX_RANKS})
