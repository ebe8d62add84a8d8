"""While a run lasts: processors and memory that its processes use, a line per look in ``effort.jsonl``."""

from __future__ import annotations

import json
import os
import sys
import time

from ..memory import Memory
from ..notes import alive
from ..process_usage import Effort
from ..shared.files import read_json
from ..shared.layout import RunFolder
from .companion import Companion

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

# Seconds between two looks, for a run that is younger than so many seconds.
_PACES = ((10.0, 0.5), (60.0, 2.0), (3600.0, 10.0))
_SLOWEST = 30.0
_SHARE = 100  # a look that takes long is followed by a pause so many times as long
_LARGEST = 16 << 20  # bytes
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


class Usage(Companion):
    """Of one run. Whatever cannot be had is left out: nothing depends on it."""

    task = "measuring CPU and memory"

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._effort: Optional[Effort] = None
        self._memory = Memory()
        self._began = self._next = 0.0

    def tick(self, facts: Optional[Dict[str, Any]]) -> None:
        now = time.monotonic()
        if facts is not None and now >= self._next and sys.platform == "linux":
            self._look(facts, now)

    def _look(self, facts: Dict[str, Any], now: float) -> None:
        if self._effort is None:
            self._effort = Effort(lambda: self._roots(facts))
            self._began = now - max(0.0, time.time() - facts["time"])
        self._effort.look(now)
        self._write(now - self._began)
        took, age = time.monotonic() - now, now - self._began
        pace = next((pace for until, pace in _PACES if age < until), _SLOWEST)
        self._next = now + max(pace, _SHARE * took)

    def _roots(self, facts: Dict[str, Any]) -> List[int]:
        if facts.get("pid"):
            return [facts["pid"]]
        inside = read_json(self._run.inside) or {}  # of a container
        known = alive((inside.get("pid"), inside.get("start")))
        return [inside["pid"]] if known else []

    def _write(self, age: float) -> None:
        effort = self._effort
        if effort is None or effort.cores is None or not effort.pids():
            return  # the first look has nothing to compare with
        pids = effort.pids()
        memory, how = self._memory.look(pids, effort.memory)
        told: Dict[str, Any] = {"t": round(age, 2), "cores": round(effort.cores, 3), "memory": memory}
        told["processes"] = len(pids)
        if how:
            told["counted"] = how
        try:
            file = os.open(self._run.effort, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _CLOEXEC, 0o600)
            try:
                if os.fstat(file).st_size < _LARGEST:
                    os.write(file, (json.dumps(told, separators=(",", ":")) + "\n").encode("ascii"))
            finally:
                os.close(file)
        except OSError:
            pass  # a full disk
