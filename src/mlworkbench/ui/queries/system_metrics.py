"""Machine metrics of a run: its GPUs and its own processes. Files are read incrementally as they grow."""

from __future__ import annotations

import os
import threading
from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from ...errors import UnknownName
from ...history.series.downsampling import columns
from ...history.store import History
from ...model import Run
from ...paths import RunFolder
from ...remote.shared.folder_tree import READ
from ...remote.shared.untrusted_json import parse_json
from ...runfiles.output_file import read_at
from ...sanitize import plain
from .series import Series, Span

_MAX_FILES = 8  # maximum number of files whose samples are cached
_MAX_BYTES = 64 << 20  # maximum bytes read from a file; the sampler has the same limit
_CHUNK = 1 << 22
_MAX_GPUS = 64
_MAX_VALUE = 1e300  # exceeds any real measurement; a scaled value still fits in a float
_GIB, _PERCENT = 1 / 2**30, 1.0
# Maps metrics to titles, units, and scales.
_GPU_METRICS = {
    "utilisation": ("utilization", " %", _PERCENT),
    "own": ("memory used by this run", " GiB", _GIB),
    "memory": ("memory in use", " GiB", _GIB),
    "power": ("power", " W", 1.0),
    "temperature": ("temperature", " °C", 1.0),
}
_RUN_METRICS = {
    "cores": ("CPU cores used", " cores", 1.0),
    "memory": ("Memory of the run", " GiB", _GIB),
}
# How memory was measured; this matters only if a run has several processes.
_MEMORY_METHODS = {
    "pss": "PSS; shared memory is divided among processes",
    "cgroup": "cgroup",
    "rss": "RSS; shared memory is counted for each process",
}


@dataclass(frozen=True)
class Gauge:
    """A machine metric and its curves. A GPU metric has a curve for each GPU."""

    title: str
    unit: str
    curves: Annotated[list[tuple[str, str]], Field(description="Label, and name to pass to /machine/series")]


@dataclass
class _Column:
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, when: float, value: float) -> None:
        self.times.append(when)
        self.values.append(value)


@dataclass
class _SampleFile:
    offset: int = 0
    rest: bytes = b""
    columns: dict[str, _Column] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)  # UUIDs in order of appearance
    counted: str = ""  # last reported method of measuring memory
    lock: threading.Lock = field(default_factory=threading.Lock)


class Telemetry:
    """Cache of samples from recently viewed runs."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, _SampleFile] = OrderedDict()
        self._lock = threading.Lock()

    def gauges(self, history: History, run_id: str) -> list[Gauge]:
        """Return the available gauges."""
        run, folder = _locate(history, run_id)
        gauges = []
        process_file = self._read(folder.usage_samples)
        for name, (title, unit, _) in _RUN_METRICS.items():
            if name in process_file.columns:
                method = _MEMORY_METHODS.get(process_file.counted) if name == "memory" else None
                gauges.append(Gauge(f"{title} ({method})" if method else title, unit, [(title, f"run.{name}")]))
        gpu_file = self._read(folder.gpu)
        names = _gpu_names(run)
        for name, (title, unit, _) in _GPU_METRICS.items():
            curves = [
                (names.get(uuid, f"GPU {index}"), f"gpu{index}.{name}")
                for index, uuid in enumerate(gpu_file.order)
                if f"{uuid}.{name}" in gpu_file.columns
            ]
            if curves:
                gauges.append(Gauge(f"GPU {title}", unit, curves))
        return gauges

    def load_series(self, history: History, run_id: str, name: str, width: int, x: str, span: Span | None) -> Series:
        """Load a curve. ``name`` must be a name that ``gauges`` returned."""
        run, folder = _locate(history, run_id)
        kind, _, metric = name.partition(".")
        if kind == "run":
            column = self._read(folder.usage_samples).columns.get(metric)
        else:
            file = self._read(folder.gpu)
            index = int(kind[3:]) if kind[:3] == "gpu" and kind[3:].isdecimal() and len(kind) < 7 else -1
            uuid = file.order[index] if 0 <= index < len(file.order) else None
            column = file.columns.get(f"{uuid}.{metric}")
        if column is None:
            raise UnknownName(
                "figure", name, [curve for gauge in self.gauges(history, run_id) for _, curve in gauge.curves]
            )
        start = run.started or run.spec.created
        times, values = column.times[: len(column.values)], column.values[: len(column.times)]
        downsampled = columns((start + when for when in times), values, width, span)
        return Series(
            run=run.id,
            name=name,
            over="time",
            count=len(values),
            start=start,
            final=run.status.final,
            columns=downsampled,
            least=min(values),
            greatest=max(values),
            last=values[-1],
        )

    def _read(self, path: str) -> _SampleFile:
        with self._lock:
            file = self._files.pop(path, None) or _SampleFile()
            self._files[path] = file
            while len(self._files) > _MAX_FILES:
                self._files.popitem(last=False)
        with file.lock:
            _read_new_lines(file, path)
        return file


def _locate(history: History, run_id: str) -> tuple[Run, RunFolder]:
    run = history.get(run_id)
    return run, history.paths.root.run(run.spec.folder)


def _read_new_lines(file: _SampleFile, path: str) -> None:
    """Read new lines. Skip invalid ones, because the lines may come from another machine."""
    try:
        handle = os.open(path, READ | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return  # nothing was measured
    with open(handle, "rb", buffering=0) as source:
        while file.offset < _MAX_BYTES:
            data = read_at(source.fileno(), _CHUNK, file.offset)
            if not data:
                return
            file.offset += len(data)
            *lines, file.rest = (file.rest + data).split(b"\n")
            file.rest = file.rest[-_CHUNK:]
            for line in lines:
                _add_sample(file, line)


def _add_sample(file: _SampleFile, line: bytes) -> None:
    try:
        sample = parse_json(line)
        when = float(sample["t"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return
    if not 0 <= when < 1e9:
        return
    gpus = sample.get("gpus")
    if not isinstance(gpus, list):
        method = sample.get("counted")
        file.counted = method if isinstance(method, str) and method in _MEMORY_METHODS else file.counted
        for name, (_, _, scale) in _RUN_METRICS.items():
            _add_value(file, name, when, sample.get(name), scale)
        return
    for gpu in gpus[:_MAX_GPUS]:
        uuid = gpu.get("uuid") if isinstance(gpu, dict) else None
        if not isinstance(uuid, str) or (uuid not in file.order and len(file.order) >= _MAX_GPUS):
            continue
        if uuid not in file.order:
            file.order.append(uuid)
        for name, (_, _, scale) in _GPU_METRICS.items():
            _add_value(file, f"{uuid}.{name}", when, gpu.get(name), scale)


def _add_value(file: _SampleFile, name: str, when: float, value: Any, scale: float) -> None:
    """Add a value to its column. Ignore what is not a number, so that no column is empty."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and -_MAX_VALUE < value < _MAX_VALUE:
        file.columns.setdefault(name, _Column()).add(when, float(value) * scale)


def _gpu_names(run: Run) -> dict[str, str]:
    """Map GPU UUIDs to labels such as ``GPU 0: H200``, if the target reported them."""
    record = run.gpu or {}
    got = record.get("got")
    gpus = [*(record.get("gpus") or ()), *((got.get("gpus") or ()) if isinstance(got, dict) else ())]
    records = [gpu for gpu in gpus if isinstance(gpu, dict)]
    return {str(gpu.get("uuid")): plain(f"GPU {gpu.get('index')}: {gpu.get('name')}", 80) for gpu in records}


SHARED = Telemetry()  # shared by all pages, so that each file is read once
