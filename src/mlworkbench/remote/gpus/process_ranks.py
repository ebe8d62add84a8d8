"""Find the rank of a process: its number among the processes that a launcher such as torchrun started."""

from __future__ import annotations

from ..ranks import read_ranks

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Optional

    from ..shared.layout import RunFolder
    from .process_owner import ProcessTable


class ProcessRanks:
    """The ranks of a run's processes, by the process IDs that the parents of the ranks recorded."""

    def __init__(self, run: RunFolder, contained: bool) -> None:
        self._run = run
        self._contained = contained

    def find(self, pid: int, table: ProcessTable) -> Optional[int]:
        """Return the rank of a process or of its nearest ancestor that is a rank."""
        ranks = {record["pid"]: record["rank"] for record in read_ranks(self._run) if record["pid"]}
        for ancestor in table.ancestors(pid) if ranks else ():
            # In a container, the parents of the ranks see the process IDs of its namespace.
            recorded = table.innermost_pid(ancestor) if self._contained else ancestor
            if recorded in ranks:
                return int(ranks[recorded])
        return None
