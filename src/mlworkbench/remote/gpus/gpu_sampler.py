"""Sample the GPUs during a run: one line per sample in ``gpu.jsonl``, and a summary at the end."""

from __future__ import annotations

import json
import os

from ..process_usage import ProcessUsage
from ..shared.open_files import open_files
from .gpu_readings import open_source
from .process_owner import ProcessTable, find_owner, sees_host_pids
from .usage_totals import GpuTotals

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence

    from .process_owner import Owner
    from .process_ranks import ProcessRanks

# (age of the run, seconds between two samples): young runs are sampled more often.
_INTERVALS = ((10.0, 0.5), (600.0, 1.0), (7200.0, 5.0))
_MAX_INTERVAL = 15.0
_ENERGY_INTERVAL, _TRAFFIC_INTERVAL, _USAGE_INTERVAL = 60.0, 10.0, 10.0  # seconds between expensive measurements
_CACHE_SECONDS = 10.0  # seconds until a PID is checked for reuse
_FIRST_TRAFFIC = 2.0  # seconds until the first traffic measurement, early enough for short runs
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_MAX_FILE_SIZE = 64 << 20  # maximum bytes of gpu.jsonl


class Sampler:
    """A sampler for the GPUs in ``uuids``, or for all GPUs. ``owner`` recognizes the run's processes.

    ``ranks`` finds their ranks if the run has several. Raises NvmlUnavailable if no GPU can be queried.
    """

    def __init__(
        self, uuids: Optional[Sequence[str]], owner: Owner, path: str, ranks: Optional[ProcessRanks] = None
    ) -> None:
        self._source = open_source(uuids)
        self._totals = {uuid: GpuTotals(uuid, *self._source.names[uuid]) for uuid in self._source.names}
        for uuid in uuids or ():
            if uuid not in self._totals:
                self._totals[uuid] = GpuTotals(uuid, None, None)
                self._totals[uuid].lost = {"at": 0.0, "why": "it was missing when the run started"}
        self._owner = owner
        self._ranks = ranks
        self._path = path
        self._file: Optional[int] = None  # kept open during the run
        self._bytes_left = 0
        self._usage = ProcessUsage(lambda: owner.roots)
        self._table = ProcessTable()
        self._process_cache: Dict[int, Dict[str, Any]] = {}
        # A library from MLW_NVML_LIBRARY (used in tests) reports PIDs as this process sees them.
        self._sees_host = sees_host_pids() is not False or bool(os.environ.get("MLW_NVML_LIBRARY"))
        self._openers: List[Dict[str, Any]] = []
        self.utilizations: List[Optional[int]] = []  # of all GPUs, in the last sample
        self._started: Optional[float] = None
        self._last = self._next = 0.0
        self._due = {"energy": 0.0, "traffic": _FIRST_TRAFFIC, "effort": 0.0}

    @property
    def has_opened_gpu(self) -> Optional[bool]:
        """Return whether a process of the run was found on a GPU; None if processes are not reported."""
        if any(totals.pids for totals in self._totals.values()):
            return True
        return False if any(totals.attributed for totals in self._totals.values()) else None

    def seconds_until_due(self, now: float) -> float:
        """Return the number of seconds until the next sample is due."""
        return 0.0 if self._started is None else max(0.0, self._next - now)

    def sample(self, now: float) -> bool:
        """Take a sample if it is due, and return whether one was taken. ``now`` is monotonic time."""
        if self._started is None:
            self._started = self._last = now
        elif now < self._next:
            return False
        age = now - self._started
        self._next = now + max(
            self._source.min_interval, next((interval for until, interval in _INTERVALS if age < until), _MAX_INTERVAL)
        )
        self._sample_slow_metrics(now, age)
        row: List[Dict[str, Any]] = []
        for uuid, figures in self._source.read().items():
            totals = self._totals[uuid]
            if isinstance(figures, str):
                totals.lost = totals.lost or {"at": round(age, 3), "why": figures}
                row.append({"uuid": uuid, "lost": figures})
                continue
            run_processes = self._select_run_processes(figures["processes"], now)
            totals.add(now - self._last, figures, run_processes)
            row.append(_build_row(uuid, figures, run_processes))
        self._last = now
        self.utilizations = [gpu.get("utilisation") for gpu in row]
        self._append(age, row)
        return True

    def _sample_slow_metrics(self, now: float, age: float) -> None:
        if age >= self._due["effort"]:
            self._due["effort"] = age + (_USAGE_INTERVAL if age > _USAGE_INTERVAL else 2.0)
            self._usage.sample(now)
            if not self._sees_host:
                self._openers = [self._describe_opener(pid) for pid in self._usage.pids() if has_gpu_open(pid)]
        if age >= self._due["traffic"]:
            self._due["traffic"] = age + _TRAFFIC_INTERVAL
            for uuid, totals in self._totals.items():
                totals.add_traffic(now, self._source.traffic(uuid))
                if self._ranks is not None and len(totals.pids) > 1:
                    totals.add_loads(self._source.process_loads(uuid))
        if age >= self._due["energy"]:
            self._due["energy"] = age + _ENERGY_INTERVAL
            self._read_energy()

    def _read_energy(self) -> None:
        for uuid, totals in self._totals.items():
            if totals.lost is None:
                totals.add_energy(self._source.energy(uuid))

    def _select_run_processes(
        self, processes: Optional[List[Dict[str, Any]]], now: float
    ) -> Optional[List[Dict[str, Any]]]:
        """Return the processes that belong to the run; None if that is unknown."""
        if not self._sees_host:
            return self._openers  # NVML reports PIDs of the host, which this container cannot resolve
        if processes is None:
            return None
        run_processes = []
        for process in processes:
            facts = self._process_facts(process["pid"], now)
            process.update(name=facts["name"], user=facts["user"], rank=facts["rank"])
            if facts["mine"]:
                run_processes.append(process)
        return run_processes

    def _process_facts(self, pid: int, now: float) -> Dict[str, Any]:
        """Return cached facts about a process. A reused PID is recognized by its start time."""
        cached = self._process_cache.get(pid)
        if cached is not None and now < cached["until"]:
            return cached
        stat = self._table.stat(pid)
        start = stat[1] if stat else None
        if cached is None or cached["start"] != start:
            if len(self._process_cache) > 1000:
                self._process_cache.clear()
            mine = stat is not None and find_owner(pid, [self._owner], self._table) is not None
            cached = {"mine": mine, "name": self._table.name(pid), "user": self._table.user(pid), "start": start}
            cached["rank"] = self._find_rank(pid) if mine else None
            self._process_cache[pid] = cached
        cached["until"] = now + (_CACHE_SECONDS if stat else 0.0)
        return cached

    def _find_rank(self, pid: int) -> Optional[int]:
        return None if self._ranks is None else self._ranks.find(pid, self._table)

    def _describe_opener(self, pid: int) -> Dict[str, Any]:
        facts = {"pid": pid, "memory": None, "name": self._table.name(pid), "user": self._table.user(pid)}
        return dict(facts, rank=self._find_rank(pid))

    def _append(self, age: float, row: List[Dict[str, Any]]) -> None:
        line = json.dumps({"t": round(age, 2), "gpus": row}, separators=(",", ":")) + "\n"
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _CLOEXEC, 0o600)
                self._bytes_left = _MAX_FILE_SIZE - os.fstat(self._file).st_size
            if self._bytes_left > 0:
                self._bytes_left -= os.write(self._file, line.encode("ascii"))
        except OSError:
            pass  # a full disk must not stop sampling: the summary is still reported

    def finish(self) -> Dict[str, Any]:
        """Return the summary. The sampler cannot be used afterwards."""
        self._read_energy()
        self._source.close()
        if self._file is not None:
            os.close(self._file)
        summary: Dict[str, Any] = {
            "gpus": [totals.summary() for totals in self._totals.values()],
            "host": self._sees_host,
        }
        summary.update(self._usage.summary())
        return summary


def has_gpu_open(pid: int, proc: str = "/proc") -> bool:
    """Return whether a process has opened a GPU device, which is necessary to use the GPU."""
    prefix = "/dev/nvidia"
    return any(path.startswith(prefix) and path[len(prefix) :].isdigit() for path in open_files(pid, proc))


def _build_row(uuid: str, figures: Dict[str, Any], run_processes: "Optional[List[Dict[str, Any]]]") -> Dict[str, Any]:
    """Return the part of a ``gpu.jsonl`` line for one GPU.

    ``own`` is the memory of the run's processes, or None if unknown.
    """
    sizes = None if run_processes is None else [process["memory"] for process in run_processes]
    row: Dict[str, Any] = {"uuid": uuid}
    row.update((name, figures[name]) for name in ("utilisation", "memory", "power", "temperature", "reasons"))
    row["own"] = sum(sizes) if sizes is not None and None not in sizes else None
    row["processes"] = None if run_processes is None else len(run_processes)
    return row
