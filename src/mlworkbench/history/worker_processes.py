"""Forked worker processes, which only read files. They send their results through a pipe."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

_MAX_WORKERS = 4

Result = TypeVar("Result")


def worker_count() -> int:
    """Return the number of workers. It is 1 where forking is unsafe: on macOS, or with other threads."""
    threads = sys.modules.get("threading")
    if not hasattr(os, "sched_getaffinity") or (threads and threads.active_count() > 1):
        return 1
    return min(_MAX_WORKERS, len(os.sched_getaffinity(0)))


class Worker(Generic[Result]):
    """Process that runs tasks in order. It exits when its pipe closes, even if its parent is killed."""

    def __init__(self, tasks: Sequence[Callable[[], Result]]) -> None:
        reader, writer = os.pipe()
        self._tasks = iter(tasks)
        self._pid = os.fork()
        if self._pid == 0:
            # The child must not return: it would then execute the parent's remaining code, too.
            try:
                os.close(reader)
                gc.freeze()
                with open(writer, "wb") as pipe:
                    for task in tasks:
                        data = pickle.dumps(task(), pickle.HIGHEST_PROTOCOL)
                        pipe.write(len(data).to_bytes(8, "big") + data)
                        pipe.flush()
            finally:
                os._exit(0)
        os.close(writer)
        self._pipe = open(reader, "rb")

    def next(self) -> Result:
        """Return the result of the next task. If the worker has died, run the task in this process."""
        task = next(self._tasks)
        with suppress(OSError):
            size = int.from_bytes(self._pipe.read(8), "big")
            data = self._pipe.read(size)
            if size and len(data) == size:
                result: Result = pickle.loads(data)
                return result
        return task()

    def close(self) -> None:
        self._pipe.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
