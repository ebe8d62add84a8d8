"""Work that is shared with forked processes. They only read, and send their results through a pipe."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

_MOST = 4

Result = TypeVar("Result")


def worker_count() -> int:
    """Only this process where a fork is not safe (macOS), not available, or would copy other threads' half work."""
    threads = sys.modules.get("threading")
    if not hasattr(os, "sched_getaffinity") or (threads and threads.active_count() > 1):
        return 1
    return min(_MOST, len(os.sched_getaffinity(0)))


class Worker(Generic[Result]):
    """A process that performs tasks in their order. It dies when nobody reads its results, also if we are killed."""

    def __init__(self, tasks: Sequence[Callable[[], Result]]) -> None:
        reader, writer = os.pipe()
        self._tasks = iter(tasks)
        self._pid = os.fork()
        if self._pid == 0:
            # Nothing that this process was about to do must be done twice: it never returns from here.
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
        """The result of the next task; computed here if the process has died, for whatever reason."""
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
