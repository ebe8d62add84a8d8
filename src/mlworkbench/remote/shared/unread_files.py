"""Data of a run that ML Workbench does not read or check, as listed in the run's record."""

from __future__ import annotations

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict, List

MAX_NAMED = 5  # maximum per reason; a script can create any number of files
_MAX_PATH = 160  # maximum characters of a path


class UnreadFiles:
    """Paths by reason: the names of the first few, and the number of the others."""

    def __init__(self) -> None:
        self._named: List[str] = []
        self._counts: Dict[str, int] = {}

    def add(self, path: str, reason: str) -> None:
        count = self._counts[reason] = self._counts.get(reason, 0) + 1
        if count <= MAX_NAMED:
            shown = path if len(path) <= _MAX_PATH else path[: _MAX_PATH // 2] + "..." + path[-_MAX_PATH // 2 :]
            self._named.append("%s: %s" % (shown, reason))

    def lines(self) -> List[str]:
        others = [(reason, count - MAX_NAMED) for reason, count in self._counts.items() if count > MAX_NAMED]
        return self._named + ["%d more: %s" % (count, reason) for reason, count in others]
