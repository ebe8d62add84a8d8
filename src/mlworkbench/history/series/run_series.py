"""Series of a run, whether it has its own folder or is nested in another run."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol

from ...model import Run
from ...paths import UserPaths
from ...remote.shared.metric_limits import rank_name, split_rank
from ..nested_runs import name_in_script
from .attempt_steps import attempt_starts
from .downsampling import Column, Span
from .points import Points
from .series_schema import ALL_RANKS
from .series_store import Name, Series, Value


class _History(Protocol):
    paths: UserPaths

    def load(self, run_id: str) -> tuple[Run, Any]: ...


class RunSeries:
    """Current metrics of one run. Close the object after use, or use it as a context manager."""

    def __init__(self, history: _History, run: Run, *, with_ranks: bool = False) -> None:
        """Open the metrics. ``with_ranks``: include those of all ranks, such as ``rank 2/loss``."""
        self._child: str | None = ALL_RANKS if with_ranks else None
        script_run = run
        if run.spec.inside:
            script_run = history.load(run.spec.folder)[0]
            self._child = name_in_script(script_run, run.id)
        self._series = Series(history.paths.root.run(run.spec.folder), attempt_starts(script_run))
        self._series.catch_up()

    def names(self) -> list[Name]:
        return self._series.names(self._child)

    def rank_names(self) -> dict[str, list[str]]:
        """Return the series of other ranks for each metric, such as ``{"loss": ["rank 1/loss"]}``."""
        if self._child not in (None, ALL_RANKS):
            return {}
        own = {metric.name for metric in self._series.names(None)}
        ranks = [split_rank(metric.name) for metric in self._series.names(ALL_RANKS) if metric.name not in own]
        result: dict[str, list[str]] = {}
        for rank, name in sorted(ranks):
            result.setdefault(name, []).append(rank_name(rank, name))
        return result

    def points(self, name: str) -> Points:
        return self._series.points(name, self._child)

    def downsample(self, name: str, width: int, x: str = "step", span: Span | None = None) -> list[Column]:
        return self._series.downsample(name, width, x, self._child, span)

    def value_range(self, name: str) -> Span | None:
        return self._series.value_range(name, self._child)

    def has_steps(self, name: str) -> bool:
        return self._series.has_steps(name, self._child)

    def values(self, name: str, newest: int | None = None) -> list[Value]:
        return self._series.values(name, self._child, newest)

    def rows(self, name: str, newest: int | None = None) -> list[dict[str, Any]]:
        return self._series.rows(name, self._child, newest)

    def column(self, name: str) -> list[Value]:
        return self._series.column(name, self._child)

    def close(self) -> None:
        self._series.close()

    def __enter__(self) -> RunSeries:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
