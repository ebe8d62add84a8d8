"""The series of a run, whether it has a folder of its own or was made inside another run."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol

from ...model import Run
from ...paths import UserPaths
from ..family import told_name
from .drawing import Column
from .points import Points
from .series import Name, Series, Value


class _History(Protocol):
    paths: UserPaths

    def known(self, run_id: str) -> tuple[Run, Any]: ...


class Measured:
    """What one run measured, up to this moment. To be closed, or used with ``with``."""

    def __init__(self, history: _History, run: Run) -> None:
        self._child: str | None = None
        if run.spec.inside:
            parent = history.known(run.spec.folder)[0]
            self._child = told_name(parent, run.id)
        self._series = Series(history.paths.root.run(run.spec.folder))
        self._series.catch_up()

    def names(self) -> list[Name]:
        return self._series.names(self._child)

    def points(self, name: str) -> Points:
        return self._series.points(name, self._child)

    def drawn(self, name: str, width: int, x: str = "step", span: tuple[float, float] | None = None) -> list[Column]:
        return self._series.drawn(name, width, x, self._child, span)

    def ends(self, name: str) -> tuple[float, float] | None:
        return self._series.ends(name, self._child)

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

    def __enter__(self) -> Measured:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
