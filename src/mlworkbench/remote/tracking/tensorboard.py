"""Record the content of TensorBoard event files in the working folder while they are written.

Scalars and hyperparameters are written to ``metrics/tensorboard``. See ``summary_recorder`` for other data.

    files = TrackingFiles(run.work)
    reader = TensorBoardReader(files, os.path.join(run.metrics, "tensorboard"), started)
    files.search()       # regularly
    reader.poll()        # regularly
    reader.finish()      # after the script has ended
"""

from __future__ import annotations

import os

from ..run_reader import open_regular_file, read_descriptor
from ..shared.folder_tree import FolderHandles
from .event_file import (
    HEAD_SIZE,
    MAX_RECORD,
    TAIL_SIZE,
    iterate_records,
    parse_event,
    record_length,
)
from .file_search import EVENTS, TrackingFiles
from .log_file_reader import LogFileReader
from .protobuf_wire import MAX_FIELDS, InvalidEventFile, TooManyFields
from .summary_recorder import COPIES, LARGE, SummaryRecorder
from .summary_value import SCALARS, SHORTENED_PREFIX

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    from .event_file_ranks import EventFileRanks
    from .metrics_appender import Source

LEFT_OUT = "tensorboard.left-out"  # tag that describes data missing from the run's metrics
MAX_SCALARS = 10000  # maximum per record
_SHORTENED_PREFIX = SHORTENED_PREFIX.decode("ascii")
_SHORTENED_MESSAGE = "long metric names are shortened and begin with %s" % _SHORTENED_PREFIX
_CHUNK = 256 * 1024
_CLOCK_TOLERANCE = 2.0  # seconds by which clocks may differ: older files are not from this run


class TensorBoardReader(LogFileReader):
    """Reader of the event files of one run."""

    kind = EVENTS
    left_out_tag = LEFT_OUT

    def __init__(
        self, files: TrackingFiles, target: str, started: float, ranks: Optional[EventFileRanks] = None, rank: int = 0
    ) -> None:
        """Read all event files or, with ``ranks``, only those of one rank."""
        super().__init__(files, target, started)
        self._ranks, self._rank = ranks, rank
        self._older_files: Set[str] = set()
        self._reset()

    def _reset(self) -> None:
        self._recorder = SummaryRecorder(self._folder, self._file, self._messages)

    def _restore(self, kind: str, data: Dict[str, Any]) -> None:
        self._recorder.restore(kind, data)

    def _end(self, folders: FolderHandles) -> None:
        self._recorder.finish(folders)

    def _add_sources(self, folders: FolderHandles) -> Dict[str, str]:
        """Add new event files in the order of their creation, so that names do not depend on when they are found."""
        new: List[Tuple[float, int, str]] = []
        names, ranks = self._files.found[EVENTS], self._ranks
        found = {name: name for name in names if ranks is None or ranks.find(name) == self._rank}
        for index, name in enumerate(found):
            if name in self._file.sources or name in self._older_files:
                continue
            if name.startswith(COPIES) and name[len(COPIES) :] in found:
                continue  # the copy that an earlier supervisor made
            when = self._creation_time(name, folders)
            if when is not None and when < self._started - _CLOCK_TOLERANCE:
                self._older_files.add(name)
            elif when is not None:
                new.append((when, index, name))
        for _, _, name in sorted(new):
            source = self._file.add_source(name)
            if any(prefix.startswith(_SHORTENED_PREFIX) for prefix in source.prefixes):
                self._messages.add(_SHORTENED_MESSAGE)
        return found

    def _creation_time(self, name: str, folders: FolderHandles) -> "Optional[float]":
        """Return the time of the first record; 0 for an invalid file, None for one that is still empty."""
        descriptor = open_regular_file(folders, name)
        if descriptor is None:
            return None
        try:
            first = next(iterate_records(read_descriptor(descriptor, 0, 4096)), None)
            return None if first is None else parse_event(first[1])[0]
        except (InvalidEventFile, TooManyFields):
            return 0.0
        finally:
            os.close(descriptor)

    # -- records -------------------------------------------------------------------------------------------

    def _read_records(self, source: "Source", descriptor: int) -> bool:
        has_more = self._read_chunk(source, descriptor)
        if has_more and self._recorder.has_recorded:
            self._file.add_position(source)
            self._recorder.has_recorded = False
        return has_more

    def _read_chunk(self, source: "Source", descriptor: int) -> bool:
        if os.fstat(descriptor).st_size <= source.offset:
            return False
        data = read_descriptor(descriptor, source.offset, _CHUNK)
        start = source.offset
        try:
            for position, record in iterate_records(data):
                source.offset = start + position
                self._add_summaries(source, record)
                source.offset, source.values_done = start + position + HEAD_SIZE + len(record) + TAIL_SIZE, 0
            if source.offset > start:
                return True
            length = record_length(data, 0)
            if length is None:
                return False
            return self._read_long_record(source, descriptor, length)
        except InvalidEventFile:
            source.broken = True
            return False

    def _read_long_record(self, source: "Source", descriptor: int, length: int) -> bool:
        """Read one record that is longer than a chunk."""
        size = HEAD_SIZE + length + TAIL_SIZE
        if os.fstat(descriptor).st_size < source.offset + size:
            return False
        if length > MAX_RECORD:
            self._messages.add("records of more than %d bytes, mostly images and graphs, are not read" % MAX_RECORD)
            self._recorder.keep(source, LARGE, "")
        else:
            for _, record in iterate_records(read_descriptor(descriptor, source.offset, size)):
                self._add_summaries(source, record)
        source.offset, source.values_done = source.offset + size, 0
        return True

    def _add_summaries(self, source: "Source", record: bytes) -> None:
        index = 0  # of the scalar in the record
        try:
            when, step, summaries = parse_event(record)
            for summary in summaries:
                if summary.kind != SCALARS:
                    self._recorder.add(source, summary, step)
                    continue
                if index >= MAX_SCALARS:
                    self._messages.add("only the first %d scalars of a record are read" % MAX_SCALARS)
                    return
                if index >= source.values_done:
                    source.values_done = index
                    if summary.tag.startswith(_SHORTENED_PREFIX):
                        self._messages.add(_SHORTENED_MESSAGE)
                    name = self._file.name_of(source, "metric", summary.tag)
                    self._file.add(source, name, summary.value, when or self._started, step)
                index += 1
        except TooManyFields:
            self._messages.add("only the first %d fields of a record are read" % MAX_FIELDS)
            self._recorder.keep(source, LARGE, "")
