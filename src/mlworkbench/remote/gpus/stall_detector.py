"""Detect that a run of several processes makes no progress while all of its GPUs are busy.

A collective operation in which one rank does not take part looks like this: the GPUs of the others wait at full load.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from ..shared.layout import RunFolder

TIMEOUT = 600.0  # seconds
BUSY = 90  # percent
_GAP_FACTOR = 5.0  # a script that logs rarely gets this multiple of its longest pause
_MAX_FILES = 10000
CAUSE = "a collective operation may hang because one rank does not take part in it"
REMEDY = "see where each rank is, for example with 'py-spy dump'; cancel the run if it does not continue"
PAGE = "gpu-stalled"


class StallDetector:
    """Detector for one run. It never stops a run: its warning may be wrong."""

    def __init__(self, run: RunFolder, timeout: float = TIMEOUT) -> None:
        self._run = run
        self._timeout = timeout
        self._progress: Any = None
        self._changes = 0
        self._changed_at = 0.0
        self._longest_gap = 0.0
        self._busy_since: Optional[float] = None
        self._is_stalled = False

    def update(self, now: float, utilizations: List[Optional[int]]) -> Optional[Dict[str, Any]]:
        """Return a warning when the run stalls, a warning without text when it continues, or None."""
        return self._decide(now, utilizations, _read_progress(self._run))

    def _decide(self, now: float, utilizations: List[Optional[int]], progress: Any) -> Optional[Dict[str, Any]]:
        if progress != self._progress:
            if self._changes > 1:  # the time before the first metric is not a pause
                self._longest_gap = max(self._longest_gap, now - self._changed_at)
            self._progress, self._changes, self._changed_at = progress, self._changes + 1, now
            was_stalled, self._is_stalled = self._is_stalled, False
            return {"warning": None, "diagnosis": None} if was_stalled else None
        is_busy = bool(utilizations) and all(value is not None and value >= BUSY for value in utilizations)
        if not is_busy:
            self._busy_since = None
            return None
        self._busy_since = now if self._busy_since is None else self._busy_since
        waited = now - max(self._busy_since, self._changed_at)
        if self._is_stalled or self._changes < 2 or waited < max(self._timeout, _GAP_FACTOR * self._longest_gap):
            return None
        self._is_stalled = True
        period = "%d min" % (waited / 60) if waited >= 60 else "%d s" % waited
        text = "all GPUs of the run have been busy for %s, but it logged and printed nothing" % period
        return {"warning": text, "diagnosis": {"cause": CAUSE, "remedy": REMEDY, "explain": PAGE}}


def _read_progress(run: RunFolder) -> Any:
    """Return the size of the log, and the number and total size of the metrics files."""
    try:
        log = os.stat(run.log, follow_symlinks=False).st_size
    except OSError:
        log = 0
    count = size = 0
    try:
        with os.scandir(run.metrics) as entries:
            for entry in entries:
                if count >= _MAX_FILES:
                    break
                count, size = count + 1, size + entry.stat(follow_symlinks=False).st_size
    except OSError:
        pass  # the script can change the folder
    return log, count, size
