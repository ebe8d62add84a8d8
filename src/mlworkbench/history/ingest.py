"""Ingest new bytes of a run's files. Ingesting the same bytes twice changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model import Event, Run
from ..remote.shared.event_numbers import WRITER
from ..remote.shared.metric_limits import MAX_SKIPPED, files_left, source_of
from .journal_parsing import MAX_LINE, parse_events, parse_metric_lines
from .rows import ReadPosition
from .run_state import MAX_WRITER_LENGTH, MAX_WRITERS, add_left_out, fold
from .run_summary import SummaryBuilder

_TOO_LONG = (
    f"{{}}: skipped a line longer than {MAX_LINE >> 20} MiB; mlw stops reading the file after"
    f" {MAX_SKIPPED >> 20} MiB of one line"
)


def ingest_bytes(run: Run, reading: ReadPosition, parts: Mapping[str, bytes]) -> tuple[Run, ReadPosition]:
    """Return the run and the read position after these bytes.

    Each part starts at its offset in ``reading``.
    """
    offsets, seqs = dict(reading.offsets), dict(reading.seqs)
    builder = SummaryBuilder(run)
    events: list[Event] = []
    left_out: list[str] = []
    for name, data in parts.items():
        if name == "events.jsonl":
            parsed, used = parse_events(data)
            accepted = _limit_writers(parsed, seqs)
            builder.leave_out("events", len(parsed) - len(accepted))
            events += _new_events(accepted, seqs)
        elif name.startswith("metrics/"):
            if name not in offsets and files_left(offsets) <= 0:
                continue
            lines, used = parse_metric_lines(data)
            builder.take(lines, source_of(name.partition("/")[2]))
            if used and not data.endswith(b"\n", 0, used):
                left_out.append(_TOO_LONG.format(name))
        else:
            continue
        if used:
            offsets[name] = offsets.get(name, 0) + used
    if files_left(offsets) <= 0 < files_left(reading.offsets):
        builder.leave_out("files", 1)  # the number is unknown, because files over the limit are not sent
    return fold(add_left_out(builder.run(), left_out), events), ReadPosition(offsets, seqs)


def _limit_writers(events: Iterable[Event], seqs: Mapping[str, int]) -> list[Event]:
    """Drop events from writers beyond the limit. mlw's own supervisor is always accepted."""
    writers = set(seqs)
    accepted = []
    for event in events:
        if event.writer not in writers:
            is_over_limit = len(writers) >= MAX_WRITERS or len(event.writer) > MAX_WRITER_LENGTH
            if is_over_limit and event.writer != WRITER:
                continue
            writers.add(event.writer)
        accepted.append(event)
    return accepted


def _new_events(events: Iterable[Event], seqs: dict[str, int]) -> list[Event]:
    new = []
    for event in events:
        if event.seq > seqs.get(event.writer, 0):
            seqs[event.writer] = event.seq
            new.append(event)
    return new
