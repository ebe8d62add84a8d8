"""Pool of worker threads, so that blocking file access in one page does not delay the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from ..history.store import History
from ..paths import UserPaths

Params = ParamSpec("Params")
Result = TypeVar("Result")

COUNT = 8


class WorkerPool:
    """Worker threads, each with its own ``History``.

    ``await workers.call(query, …)`` runs ``query(history, …)``.
    """

    def __init__(self, paths: UserPaths, count: int = COUNT) -> None:
        self._paths = paths
        self._pool = ThreadPoolExecutor(count, "mlw-ui")
        self._thread_data = threading.local()  # an index connection belongs to one thread

    async def call(
        self,
        query: Callable[Concatenate[History, Params], Result],
        *args: Params.args,
        **kwargs: Params.kwargs,
    ) -> Result:
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: query(self._history(), *args, **kwargs)
        )

    def _history(self) -> History:
        if not hasattr(self._thread_data, "history"):
            self._thread_data.history = History(self._paths)
        history: History = self._thread_data.history
        return history

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
