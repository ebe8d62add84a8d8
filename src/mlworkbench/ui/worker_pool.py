"""Worker threads, each with a History of its own: a page that waits for the disk must not make the others wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from ..history.store import History
from ..paths import UserPaths

Words = ParamSpec("Words")
Answer = TypeVar("Answer")

COUNT = 8


class Hands:
    """``await hands.ask(work, …)`` is ``work(history, …)`` in one of the threads."""

    def __init__(self, paths: UserPaths, count: int = COUNT) -> None:
        self._paths = paths
        self._pool = ThreadPoolExecutor(count, "mlw-ui")
        self._own = threading.local()  # a connection to the index belongs to one thread

    async def ask(
        self,
        work: Callable[Concatenate[History, Words], Answer],
        *words: Words.args,
        **named: Words.kwargs,
    ) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: work(self._history(), *words, **named)
        )

    def _history(self) -> History:
        if not hasattr(self._own, "history"):
            self._own.history = History(self._paths)
        known: History = self._own.history
        return known

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
