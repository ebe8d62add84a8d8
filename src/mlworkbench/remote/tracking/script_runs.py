"""Runs that a script recorded with MLflow or W&B, as runs of the history.

The first one represents the mlw run while it is the only top-level one. Nested runs are children. If there is another
top-level run, all of them are children, and the first one also shares the data of the mlw run. The in-run library
does the same for MLflow's client (``_mlflow/_recorder.py``).
"""

from __future__ import annotations

import math

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Union

    from .metrics_appender import MetricsAppender, Source

MAX_NAME = 1000  # characters of a name and of a value: the history cuts longer ones
MAX_VALUE = 6000
MAX_RUNS = 5000
_MAX_TIME = 1e11  # seconds


class ScriptRuns:
    """Recorder of the runs of one metrics file. ``first`` is the run without a parent that came first, if any."""

    def __init__(self, file: MetricsAppender, first: Optional[str] = None) -> None:
        self._file = file
        self.first = first

    def child(self, run_id: str, facts: Dict[str, Any], **more: Any) -> None:
        """Record the name, status, times, or parent of a child run."""
        self._file.add_record("child", dict(facts, run=run_id, **more), facts.get("started", 0.0))

    def record(self, run_id: str, kind: str, name: str, value: Any, when: float) -> None:
        """Record a parameter or a tag."""
        if isinstance(value, str):
            value = value[:MAX_VALUE]
        self._file.add_record(kind, self._owned(run_id, name=name[:MAX_NAME], value=value), when)

    def add(self, run_id: Optional[str], kind: str, data: Dict[str, Any], when: float) -> None:
        """Record a dataset or a model. Without a run, it belongs to the mlw run."""
        self._file.add_record(kind, data if run_id is None else self._owned(run_id, **data), when)

    def point(
        self, source: Source, run_id: str, name: str, value: Union[int, float], when: float, step: Optional[int]
    ) -> None:
        """Record a point of a metric. ``source`` is the file that contains it."""
        name, when = name[:MAX_NAME], valid_time(when)
        if run_id == self.first:
            self._file.add(source, name, value, when, step)
        else:
            data = self._owned(run_id, name=name, value=encode_float(value), step=step)
            self._file.add_record("metric", data, when, source)

    def _owned(self, run_id: str, **data: Any) -> Dict[str, Any]:
        return data if run_id == self.first else dict(data, run=run_id)


def valid_time(seconds: float) -> float:
    return seconds if 0 <= seconds < _MAX_TIME else 0.0  # also for NaN


def encode_float(value: Any) -> Any:
    """Encode NaN and infinity, which JSON cannot represent, in the same way as the in-run library."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return {"f": "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"}
