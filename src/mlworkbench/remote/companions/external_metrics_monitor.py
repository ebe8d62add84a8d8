"""Metrics of scripts that do not use mlw, read from TensorBoard event files, MLflow stores, and the log.

The readers are imported only when needed: when an event file exists, or when the run requests
metrics from the log.
"""

from __future__ import annotations

import os
import time

from ..journal import log
from ..markers import read_started
from ..run_spec import is_tracked
from ..shared.failpoint import failpoint
from ..shared.layout import PRINTED_METRICS, TENSORBOARD_METRICS, WANDB_METRICS, RunFolder
from ..shared.metric_limits import file_of_rank
from ..tracking.file_search import EVENTS, MLFLOW, WANDB, TrackingFiles
from .companion import Companion

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Union

    from ..run_spec import Spec
    from ..script_files import ScriptFiles
    from ..tracking.event_file_ranks import EventFileRanks
    from ..tracking.log_file_reader import LogFileReader
    from ..tracking.printed_metrics import PrintedMetricsReader
    from ..tracking.tensorboard import TensorBoardReader
    from ..tracking.wandb_reader import WandbReader

    Facts = Optional[Dict[str, Any]]

_PAUSE = 0.9  # minimum seconds between two reads; longer if reading is slow
_PAUSE_FACTOR = 50
_MAX_PAUSE = 60.0
_END_TIMEOUT = 60.0  # seconds


class ExternalMetricsMonitor(Companion):
    """Collector of metrics that a script writes to event files or prints to the log."""

    task = "collecting metrics from event files and the log"

    def __init__(self, run: RunFolder, spec: Spec) -> None:
        self._run = run
        self._is_enabled = is_tracked(spec)
        self._keep = spec.get("keep") or ()
        self._reads_log = bool(spec.get("spoken"))
        self._files = TrackingFiles(run.work)
        self._boards: Dict[int, TensorBoardReader] = {}  # by rank
        self._has_ranks = bool(spec.get("processes"))
        self._ranks: Optional[EventFileRanks] = None
        self._wandb: Optional[WandbReader] = None
        self._spoken: Optional[PrintedMetricsReader] = None
        self._next = 0.0

    def tick(self, facts: Facts) -> None:
        if not self._is_enabled or facts is None or time.monotonic() < self._next:
            return
        began = time.monotonic()
        self._files.search()
        done = [reader.poll() for reader in self._readers(facts)]
        failpoint("tracked")
        took = time.monotonic() - began
        # If data remains to be read, continue without a pause. After a failed write, pause and retry.
        pause = 0.0 if not all(done) and not self._is_refused() else min(max(_PAUSE, _PAUSE_FACTOR * took), _MAX_PAUSE)
        self._next = time.monotonic() + pause

    def end(self, facts: Facts) -> None:
        """Read the remaining data after the script has ended, before the ending is recorded."""
        if not self._is_enabled or facts is None:
            return
        deadline = time.monotonic() + _END_TIMEOUT
        failpoint("tracking-end")
        self._files.search(now=True)
        for reader in self._readers(facts):
            if not reader.finish(max(1.0, deadline - time.monotonic())):
                log("not all metrics of %s could be read" % type(reader).__name__)

    def describe_files(self, files: ScriptFiles) -> None:
        """Record MLflow stores that the script created itself, because only now are they complete."""
        if self._wandb is not None:
            self._wandb.describe_files(files)
        paths = self._files.found[MLFLOW]
        if not self._is_enabled or not paths:
            return
        from ..tracking.mlflow_import import MlflowImport  # noqa: PLC0415 - most runs have no such store

        importing = MlflowImport(self._run, self._started_at({"time": time.time()}), self._keep, files)
        importing.record(paths, time.monotonic() + _END_TIMEOUT)

    def _readers(self, facts: Dict[str, Any]) -> List[Union[LogFileReader, PrintedMetricsReader]]:
        if self._files.found[EVENTS] or self._files.left_out:
            self._open_boards(facts)
        if self._wandb is None and self._files.found[WANDB]:
            from ..tracking.wandb_reader import WandbReader  # noqa: PLC0415 - most runs do not use W&B

            target = os.path.join(self._run.metrics, WANDB_METRICS)
            self._wandb = WandbReader(self._files, target, self._started_at(facts))
        if self._spoken is None and self._reads_log:
            from ..tracking.printed_metrics import PrintedMetricsReader  # noqa: PLC0415 - only if requested

            self._spoken = PrintedMetricsReader(self._run.log, os.path.join(self._run.metrics, PRINTED_METRICS))
        return self._open_readers()

    def _open_boards(self, facts: Dict[str, Any]) -> None:
        from ..tracking.tensorboard import TensorBoardReader  # noqa: PLC0415 - most runs have no event file

        # The files of earlier attempts are read, and their ranks are no longer known.
        started = float(facts["time"]) if self._has_ranks else self._started_at(facts)
        if self._has_ranks and self._ranks is None:
            from ..tracking.event_file_ranks import EventFileRanks  # noqa: PLC0415 - only for several processes

            self._ranks = EventFileRanks(self._run)
        others = self._ranks.update(self._files.found[EVENTS]) if self._ranks is not None else []
        for rank in {0, *others}.difference(self._boards):
            target = os.path.join(self._run.metrics, file_of_rank(TENSORBOARD_METRICS, rank))
            self._boards[rank] = TensorBoardReader(self._files, target, started, self._ranks, rank)

    def _started_at(self, facts: Dict[str, Any]) -> float:
        """Return the start of the first attempt. Attempts share the working copy and its files."""
        return float((read_started(self._run.at(1)) or facts)["time"])

    def _open_readers(self) -> List[Union[LogFileReader, PrintedMetricsReader]]:
        readers = self._wandb, *self._boards.values(), self._spoken
        return [reader for reader in readers if reader is not None]

    def _is_refused(self) -> bool:
        return any(reader.disk_failed for reader in self._open_readers())
