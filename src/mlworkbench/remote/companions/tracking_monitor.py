"""Metrics of scripts that know nothing of us, as the supervisor sees them: a tick now and then, everything at the end.

Light on purpose: what reads event files is loaded when there is one, what reads the log where the run asks for it.
"""

from __future__ import annotations

import os
import time

from ..journal import log
from ..shared.failpoint import failpoint
from ..shared.layout import RunFolder
from ..tracking.search import EventFiles
from .companion import Companion

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Union

    from ..run_spec import Spec
    from ..tracking.spoken import Spoken
    from ..tracking.tensorboard import Board

    Facts = Optional[Dict[str, Any]]

BOARD, SPOKEN = "tensorboard", "spoken"  # names of the files in metrics/
_PAUSE = 0.9  # seconds between two looks, and more where one takes long
_SHARE = 50
_RARELY = 60.0
_AT_THE_END = 60.0  # seconds


class Tracking(Companion):
    """What one run's script writes and prints."""

    task = "collecting metrics from event files and the log"

    def __init__(self, run: RunFolder, spec: Spec) -> None:
        self._run = run
        self._on = spec.get("tracked") is not False
        self._listens = bool(spec.get("spoken"))
        self._files = EventFiles(run.work)
        self._board: Optional[Board] = None
        self._spoken: Optional[Spoken] = None
        self._next = 0.0

    def tick(self, facts: Facts) -> None:
        if not self._on or facts is None or time.monotonic() < self._next:
            return
        began = time.monotonic()
        self._files.look()
        done = [reader.look() for reader in self._readers(facts)]
        failpoint("tracked")
        took = time.monotonic() - began
        # What is behind goes on at once; what a disk refuses is read again from its begin, and therefore rarely.
        pause = 0.0 if not all(done) and not self._refused() else min(max(_PAUSE, _SHARE * took), _RARELY)
        self._next = time.monotonic() + pause

    def end(self, facts: Facts) -> None:
        """The script has ended: take in the rest, before anybody is told."""
        if not self._on or facts is None:
            return
        end = time.monotonic() + _AT_THE_END
        failpoint("tracking-end")
        self._files.look(now=True)
        for reader in self._readers(facts):
            if not reader.finish(max(1.0, end - time.monotonic())):
                log("not all metrics of %s could be read" % type(reader).__name__)

    def _readers(self, facts: Dict[str, Any]) -> List[Union[Board, Spoken]]:
        if self._board is None and (self._files.found or self._files.left_out):
            from ..tracking.tensorboard import Board  # noqa: PLC0415 - most runs have no such file

            self._board = Board(self._files, os.path.join(self._run.metrics, BOARD), float(facts["time"]))
        if self._spoken is None and self._listens:
            from ..tracking.spoken import Spoken  # noqa: PLC0415 - regular expressions that other runs need not hold

            self._spoken = Spoken(self._run.log, os.path.join(self._run.metrics, SPOKEN))
        return [reader for reader in (self._board, self._spoken) if reader is not None]

    def _refused(self) -> bool:
        return any(reader is not None and reader.refused for reader in (self._board, self._spoken))
