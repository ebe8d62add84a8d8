"""New bytes of a run's files → the run. The same bytes twice change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model import Event, Run
from ..remote.shared.events import WRITER
from ..remote.shared.metric_files import LONGEST_SKIPPED, files_left
from .fold import LONGEST_WRITER, MOST_WRITERS, fold, leave_out
from .reading import LINE, parse_events, parse_lines
from .rows import Reading
from .tally import Tally

_TOO_LONG = (
    f"{{}}: skipped a line longer than {LINE >> 20} MiB; mlw stops reading the file after {LONGEST_SKIPPED >> 20} MiB"
    " of one line"
)


def take_in(run: Run, reading: Reading, parts: Mapping[str, bytes]) -> tuple[Run, Reading]:
    """The run after these parts of its files, each read from where ``reading`` says; and how far that is now."""
    offsets, seqs = dict(reading.offsets), dict(reading.seqs)
    tally = Tally(run)
    events: list[Event] = []
    left: list[str] = []
    for name, data in parts.items():
        if name == "events.jsonl":
            found, used = parse_events(data)
            known = _of_known_writers(found, seqs)
            tally.leave_out("events", len(found) - len(known))
            events += _unseen(known, seqs)
        elif name.startswith("metrics/"):
            if name not in offsets and files_left(offsets) <= 0:
                continue
            lines, used = parse_lines(data)
            tally.take(lines)
            if used and not data.endswith(b"\n", 0, used):
                left.append(_TOO_LONG.format(name))
        else:
            continue
        if used:
            offsets[name] = offsets.get(name, 0) + used
    if files_left(offsets) <= 0 < files_left(reading.offsets):
        tally.leave_out("files", 1)  # the number is unknown: further files are not sent
    return fold(leave_out(tally.run(), left), events), Reading(offsets, seqs)


def _of_known_writers(events: Iterable[Event], seqs: Mapping[str, int]) -> list[Event]:
    """Without the events of writers beyond the limit. Our own supervisor is never one of those."""
    writers = set(seqs)
    known = []
    for event in events:
        if event.writer not in writers:
            is_too_many = len(writers) >= MOST_WRITERS or len(event.writer) > LONGEST_WRITER
            if is_too_many and event.writer != WRITER:
                continue
            writers.add(event.writer)
        known.append(event)
    return known


def _unseen(events: Iterable[Event], seqs: dict[str, int]) -> list[Event]:
    new = []
    for event in events:
        if event.seq > seqs.get(event.writer, 0):
            seqs[event.writer] = event.seq
            new.append(event)
    return new
