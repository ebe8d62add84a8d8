"""All run folders, read by as many processes as there are cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from ..remote.shared.layout import Root
from .folders import read_family
from .parallel import Worker, worker_count
from .rows import Encoded, encode

Batch = list[tuple[str, Encoded]]

SIZE = 200
_FEW = 2000  # so many are read before another process has begun
# Its spec is whole and yet absurd.
_ABSURD = (TypeError, ValueError, OverflowError, AttributeError)


def gather(root: Root, names: Sequence[str]) -> Iterator[tuple[int, Batch]]:
    """The runs in the order of the names, some at a time, and how many of the names are behind them."""
    batches = [names[at : at + SIZE] for at in range(0, len(names), SIZE)]
    count = worker_count() if len(names) >= _FEW else 1
    tasks = [partial(read_batch, root, batch) for batch in batches]
    workers = [Worker(tasks[first::count]) for first in range(1, count)]
    try:
        for at, (batch, task) in enumerate(zip(batches, tasks, strict=True)):
            turn = at % count
            yield at * SIZE + len(batch), workers[turn - 1].next() if turn else task()
    finally:
        for worker in workers:
            worker.close()


def read_batch(root: Root, names: Sequence[str]) -> Batch:
    found = []
    for name in names:
        with suppress(*_ABSURD):
            found += [(name, encode(*one, {})) for one in read_family(root, name)]
    return found
