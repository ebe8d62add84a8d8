"""Read all run folders with one process per core."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from ..remote.shared.layout import Root
from .rows import Encoded, encode
from .run_folders import read_run_folder
from .worker_processes import Worker, worker_count

Batch = list[tuple[str, Encoded]]

BATCH_SIZE = 200
_MIN_FOR_WORKERS = 2000  # reading fewer folders is faster than starting a worker
# Errors caused by a complete spec with invalid values.
_SPEC_ERRORS = (TypeError, ValueError, OverflowError, AttributeError)


def read_in_batches(root: Root, names: Sequence[str]) -> Iterator[tuple[int, Batch]]:
    """Yield the runs in batches, in name order, with the number of names processed so far."""
    batches = [names[at : at + BATCH_SIZE] for at in range(0, len(names), BATCH_SIZE)]
    count = worker_count() if len(names) >= _MIN_FOR_WORKERS else 1
    tasks = [partial(read_batch, root, batch) for batch in batches]
    workers = [Worker(tasks[first::count]) for first in range(1, count)]
    try:
        for at, (batch, task) in enumerate(zip(batches, tasks, strict=True)):
            worker_index = at % count
            yield at * BATCH_SIZE + len(batch), workers[worker_index - 1].next() if worker_index else task()
    finally:
        for worker in workers:
            worker.close()


def read_batch(root: Root, names: Sequence[str]) -> Batch:
    batch = []
    for name in names:
        with suppress(*_SPEC_ERRORS):
            batch += [(name, encode(*run_and_position, {})) for run_and_position in read_run_folder(root, name)]
    return batch
