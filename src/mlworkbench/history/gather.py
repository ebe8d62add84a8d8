"""All run folders, read by as many processes as there are cores. They only read: what they find is told by a pipe."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO

from ..remote.folder import Root
from .folders import read_family
from .rows import Encoded, encode

Batch = list[tuple[str, Encoded]]

SIZE = 200
_FEW = 2000  # so many are read before another process has begun
_MOST = 4
# Its spec is whole and yet absurd.
_ABSURD = (TypeError, ValueError, OverflowError, AttributeError)


def gather(root: Root, names: Sequence[str]) -> Iterator[tuple[int, Batch]]:
    """The runs in the order of the names, some at a time, and how many of the names are behind them."""
    batches = [names[at : at + SIZE] for at in range(0, len(names), SIZE)]
    hands = free_hands() if len(names) >= _FEW else 1
    helpers = [_Helper(root, batches[hand::hands]) for hand in range(1, hands)]
    try:
        for at, batch in enumerate(batches):
            hand = at % hands
            yield at * SIZE + len(batch), helpers[hand - 1].next() if hand else read_batch(root, batch)
    finally:
        for helper in helpers:
            helper.close()


def read_batch(root: Root, names: Sequence[str]) -> Batch:
    found = []
    for name in names:
        with suppress(*_ABSURD):
            found += [(name, encode(*one, {})) for one in read_family(root, name)]
    return found


def free_hands() -> int:
    """Only this process where a fork is not safe (macOS), not to be had, or would copy other threads' half work."""
    threads = sys.modules.get("threading")
    if not hasattr(os, "sched_getaffinity") or (threads and threads.active_count() > 1):
        return 1
    return min(_MOST, len(os.sched_getaffinity(0)))


class _Helper:
    """A process that reads its share. It dies when nobody listens any more: also when we were killed."""

    def __init__(self, root: Root, batches: Sequence[Sequence[str]]) -> None:
        reader, writer = os.pipe()
        self._root = root
        self._batches = iter(batches)
        self._pid = os.fork()
        if self._pid == 0:
            # Nothing that this process was about to do must be done twice: it never returns from here.
            try:
                os.close(reader)
                gc.freeze()
                with open(writer, "wb") as pipe:
                    for names in batches:
                        _tell(pipe, read_batch(root, names))
            finally:
                os._exit(0)
        os.close(writer)
        self._pipe = open(reader, "rb")

    def next(self) -> Batch:
        """Its next batch; read here if it has died, for whatever reason."""
        names = next(self._batches)
        try:
            size = int.from_bytes(self._pipe.read(8), "big")
            data = self._pipe.read(size)
            return pickle.loads(data) if size and len(data) == size else read_batch(self._root, names)
        except OSError:
            return read_batch(self._root, names)

    def close(self) -> None:
        self._pipe.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _tell(pipe: BinaryIO, batch: Batch) -> None:
    data = pickle.dumps(batch, pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(8, "big") + data)
    pipe.flush()
