"""Split data into requests within MLflow's limits for ``log-batch``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest

from ...model import JsonDict

MAX_METRICS = 999  # MLflow accepts 1,000 entries of all kinds per request; the last request has a tag, too
MAX_OTHERS = 100
_MAX_BYTES = 450_000  # for each kind, because MLflow accepts 1,000,000 bytes per request


def pair_batches(params: Iterable[JsonDict], tags: Iterable[JsonDict]) -> Iterator[JsonDict]:
    """Yield the bodies of requests that log these parameters and tags."""
    empty: list[JsonDict] = []
    batches = zip_longest(split(params, MAX_OTHERS), split(tags, MAX_OTHERS), fillvalue=empty)
    for some_params, some_tags in batches:
        yield {name: batch for name, batch in (("params", some_params), ("tags", some_tags)) if batch}


def split(entries: Iterable[JsonDict], most: int) -> Iterator[list[JsonDict]]:
    """Split entries into batches within the limits for count and size."""
    batch: list[JsonDict] = []
    size = 0
    for entry in entries:
        length = len(json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace"))
        if batch and (len(batch) >= most or size + length > _MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += length
    if batch:
        yield batch


def chunks(entries: Iterator[JsonDict], most: int = MAX_METRICS) -> Iterator[list[JsonDict]]:
    """Split points, whose size is limited by that of names."""
    while chunk := list(islice(entries, most)):
        yield chunk
