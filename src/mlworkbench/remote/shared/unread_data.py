"""What a run recorded and ML Workbench does not read or check, for the run's record."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Dict, List

NAMED = 5  # of each reason; a script can make any number of them
_LONGEST = 160  # characters of a path


class LeftOut:
    """Paths by reason: the first few with their names, and the number of the others."""

    def __init__(self) -> None:
        self._named: List[str] = []
        self._counts: Dict[str, int] = {}

    def add(self, path: str, reason: str) -> None:
        count = self._counts[reason] = self._counts.get(reason, 0) + 1
        if count <= NAMED:
            shown = path if len(path) <= _LONGEST else path[: _LONGEST // 2] + "..." + path[-_LONGEST // 2 :]
            self._named.append("%s: %s" % (shown, reason))

    def lines(self) -> List[str]:
        more = [(reason, count - NAMED) for reason, count in self._counts.items() if count > NAMED]
        return self._named + ["%d more: %s" % (count, reason) for reason, count in more]
