"""CPU and memory usage of a run, written to ``effort.jsonl`` with one line per sample, and files outside of it."""

from __future__ import annotations

import json
import os
import sys
import time

from ..markers import is_alive
from ..outside_files import OutsideFiles
from ..process_memory import MemoryUsage
from ..process_usage import ProcessUsage
from ..shared.atomic_files import read_json
from ..shared.layout import RunFolder
from .companion import Companion

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from ..script_files import ScriptFiles

# (maximum age of the run in seconds, seconds between two samples)
_PAUSES = ((10.0, 0.5), (60.0, 2.0), (3600.0, 10.0))
_MAX_PAUSE = 30.0
_PAUSE_FACTOR = 100  # pause after a sample, as a multiple of its duration
_MAX_FILE_SIZE = 16 << 20  # bytes
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


class UsageMonitor(Companion):
    """Monitor of a run's CPU and memory usage. Unavailable values are left out."""

    task = "measuring CPU and memory"

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._usage: Optional[ProcessUsage] = None
        self._memory = MemoryUsage()
        self._outside = OutsideFiles(run.path)
        self._began = self._next = 0.0

    def tick(self, facts: Optional[Dict[str, Any]]) -> None:
        now = time.monotonic()
        if facts is not None and now >= self._next and sys.platform == "linux":
            self._sample(facts, now)

    def _sample(self, facts: Dict[str, Any], now: float) -> None:
        if self._usage is None:
            self._usage = ProcessUsage(lambda: self._roots(facts))
            self._began = now - max(0.0, time.time() - facts["time"])
        self._usage.sample(now)
        self._outside.look(self._usage.pids())
        self._write(now - self._began)
        took, age = time.monotonic() - now, now - self._began
        pace = next((pace for until, pace in _PAUSES if age < until), _MAX_PAUSE)
        self._next = now + max(pace, _PAUSE_FACTOR * took)

    def describe_files(self, files: ScriptFiles) -> None:
        self._outside.describe(files)

    def _roots(self, facts: Dict[str, Any]) -> List[int]:
        if facts.get("pid"):
            return [facts["pid"]]
        marker = read_json(self._run.container_process) or {}  # exists only for a container
        is_running = is_alive((marker.get("pid"), marker.get("start")))
        return [marker["pid"]] if is_running else []

    def _write(self, age: float) -> None:
        effort = self._usage
        if effort is None or effort.cores is None or not effort.pids():
            return  # the first sample has no predecessor to compare with
        pids = effort.pids()
        memory, method = self._memory.measure(pids, effort.memory)
        sample: Dict[str, Any] = {"t": round(age, 2), "cores": round(effort.cores, 3), "memory": memory}
        sample["processes"] = len(pids)
        if method:
            sample["counted"] = method
        try:
            file = os.open(self._run.usage_samples, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _CLOEXEC, 0o600)
            try:
                if os.fstat(file).st_size < _MAX_FILE_SIZE:
                    os.write(file, (json.dumps(sample, separators=(",", ":")) + "\n").encode("ascii"))
            finally:
                os.close(file)
        except OSError:
            pass  # the disk may be full
