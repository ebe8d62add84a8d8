"""What the machine did while a run lasted: its GPUs, and the run's own processes. Read as it grows."""

from __future__ import annotations

import os
import threading
from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from ...errors import UnknownName
from ...history.series.drawing import columns
from ...history.store import History
from ...model import Run
from ...paths import RunFolder
from ...remote.shared.tree import READ
from ...remote.shared.untrusted import parse_json
from ...report.plain import plain
from ...runfiles.outputfile import read_at
from .series import Series, Span

_KEPT = 8  # files whose samples stay in memory
_LARGEST = 64 << 20  # bytes, as the sampler has it
_CHUNK = 1 << 22
_GPUS = 64
_HUGE = 1e300  # what no machine measures, and what a scaled float could not hold
_GIB, _PERCENT = 1 / 2**30, 1.0
# Figure → what it is called, its unit, and what it is multiplied by.
_OF_GPU = {
    "utilisation": ("utilization", " %", _PERCENT),
    "own": ("memory used by this run", " GiB", _GIB),
    "memory": ("memory in use", " GiB", _GIB),
    "power": ("power", " W", 1.0),
    "temperature": ("temperature", " °C", 1.0),
}
_OF_RUN = {
    "cores": ("CPU cores used", " cores", 1.0),
    "memory": ("Memory of the run", " GiB", _GIB),
}
# How the memory of several processes was counted; that of a single one needs no word.
_COUNTED = {
    "pss": "PSS; shared memory is divided among processes",
    "cgroup": "cgroup",
    "rss": "RSS; shared memory is counted for each process",
}


@dataclass(frozen=True)
class Gauge:
    """A machine metric and its curves; of GPUs, a curve for each of them."""

    title: str
    unit: str
    curves: Annotated[list[tuple[str, str]], Field(description="Label, and name to pass to /machine/series")]


@dataclass
class _Column:
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, when: float, value: Any, scale: float) -> None:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and -_HUGE < value < _HUGE:
            self.times.append(when)
            self.values.append(float(value) * scale)


@dataclass
class _File:
    offset: int = 0
    rest: bytes = b""
    found: dict[str, _Column] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)  # UUIDs as they came
    counted: str = ""  # how its memory was, the last time that it mattered
    lock: threading.Lock = field(default_factory=threading.Lock)


class Samples:
    """Those of the runs that were looked at last."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._lock = threading.Lock()

    def gauges(self, history: History, run_id: str) -> list[Gauge]:
        """What there is to be drawn."""
        run, folder = _place(history, run_id)
        found = []
        own = self._read(folder.effort)
        for name, (title, unit, _) in _OF_RUN.items():
            if name in own.found:
                how = _COUNTED.get(own.counted) if name == "memory" else None
                found.append(Gauge(f"{title} ({how})" if how else title, unit, [(title, f"run.{name}")]))
        cards = self._read(folder.gpu)
        names = _names(run)
        for name, (title, unit, _) in _OF_GPU.items():
            curves = [
                (names.get(uuid, f"GPU {at}"), f"gpu{at}.{name}")
                for at, uuid in enumerate(cards.order)
                if f"{uuid}.{name}" in cards.found
            ]
            if curves:
                found.append(Gauge(f"GPU {title}", unit, curves))
        return found

    def drawn(self, history: History, run_id: str, name: str, width: int, x: str, span: Span | None) -> Series:
        """``name``: as ``gauges`` tells it."""
        run, folder = _place(history, run_id)
        kind, _, figure = name.partition(".")
        if kind == "run":
            column = self._read(folder.effort).found.get(figure)
        else:
            file = self._read(folder.gpu)
            at = int(kind[3:]) if kind[:3] == "gpu" and kind[3:].isdigit() and len(kind) < 7 else -1
            uuid = file.order[at] if 0 <= at < len(file.order) else None
            column = file.found.get(f"{uuid}.{figure}")
        if column is None:
            raise UnknownName(
                "figure", name, [one for gauge in self.gauges(history, run_id) for _, one in gauge.curves]
            )
        start = run.started or run.spec.created
        times, values = column.times[: len(column.values)], column.values[: len(column.times)]
        shown = columns((start + when for when in times), values, width, span)
        return Series(
            run=run.id,
            name=name,
            over="time",
            count=len(values),
            start=start,
            final=run.status.final,
            columns=shown,
            least=min(values),
            greatest=max(values),
            last=values[-1],
        )

    def _read(self, path: str) -> _File:
        with self._lock:
            file = self._files.pop(path, None) or _File()
            self._files[path] = file
            while len(self._files) > _KEPT:
                self._files.popitem(last=False)
        with file.lock:
            _catch_up(file, path)
        return file


def _place(history: History, run_id: str) -> tuple[Run, RunFolder]:
    run = history.get(run_id)
    return run, history.paths.root.run(run.spec.folder)


def _catch_up(file: _File, path: str) -> None:
    """Lines come from another machine, perhaps: what is odd is passed over."""
    try:
        handle = os.open(path, READ | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return  # nothing was measured
    with open(handle, "rb", buffering=0) as source:
        while file.offset < _LARGEST:
            data = read_at(source.fileno(), _CHUNK, file.offset)
            if not data:
                return
            file.offset += len(data)
            *lines, file.rest = (file.rest + data).split(b"\n")
            file.rest = file.rest[-_CHUNK:]
            for line in lines:
                _take(file, line)


def _take(file: _File, line: bytes) -> None:
    try:
        told = parse_json(line)
        when = float(told["t"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return
    if not 0 <= when < 1e9:
        return
    gpus = told.get("gpus")
    if not isinstance(gpus, list):
        how = told.get("counted")
        file.counted = how if isinstance(how, str) and how in _COUNTED else file.counted
        for name, (_, _, scale) in _OF_RUN.items():
            if told.get(name) is not None:
                file.found.setdefault(name, _Column()).add(when, told[name], scale)
        return
    for one in gpus[:_GPUS]:
        uuid = one.get("uuid") if isinstance(one, dict) else None
        if not isinstance(uuid, str) or (uuid not in file.order and len(file.order) >= _GPUS):
            continue
        if uuid not in file.order:
            file.order.append(uuid)
        for name, (_, _, scale) in _OF_GPU.items():
            if one.get(name) is not None:
                file.found.setdefault(f"{uuid}.{name}", _Column()).add(when, one[name], scale)


def _names(run: Run) -> dict[str, str]:
    """UUID → ``GPU 0: H200``, as far as the target told."""
    told = run.gpu or {}
    got = told.get("got")
    every = [*(told.get("gpus") or ()), *((got.get("gpus") or ()) if isinstance(got, dict) else ())]
    cards = [one for one in every if isinstance(one, dict)]
    return {str(one.get("uuid")): plain(f"GPU {one.get('index')}: {one.get('name')}", 80) for one in cards}


SHARED = Samples()  # what one page has read, the others need not read again
