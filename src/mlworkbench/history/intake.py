"""New bytes of a run's files → the run. The same bytes twice change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..model import Event, Run
from .fold import fold
from .reading import parse_events, parse_metrics
from .rows import Reading


def take_in(run: Run, reading: Reading, parts: Mapping[str, bytes]) -> tuple[Run, Reading]:
    """The run after these parts of its files, each read from where ``reading`` says; and how far that is now."""
    offsets, seqs, metrics = dict(reading.offsets), dict(reading.seqs), dict(run.metrics)
    for name, data in parts.items():
        if name == "events.jsonl":
            events, used = parse_events(data)
            new = _unseen(events, seqs)
            run = fold(run, new)
        elif name.startswith("metrics/"):
            points, used = parse_metrics(data)
            metrics.update(points)
        else:
            continue
        if used:
            offsets[name] = offsets.get(name, 0) + used
    return replace(run, metrics=metrics), Reading(offsets, seqs)


def _unseen(events: Iterable[Event], seqs: dict[str, int]) -> list[Event]:
    new = []
    for event in events:
        if event.seq > seqs.get(event.writer, 0):
            seqs[event.writer] = event.seq
            new.append(event)
    return new
