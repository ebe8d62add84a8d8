"""Record the content of TensorBoard event files in the working folder while they are written.

Scalars and hyperparameters are written to ``metrics/tensorboard``. See ``summary_recorder`` for other data.

    files = EventFiles(run.work)
    reader = TensorBoardReader(files, os.path.join(run.metrics, "tensorboard"), started)
    files.search()       # regularly
    reader.poll()        # regularly: takes a fraction of a second at most
    reader.finish()      # after the script has ended: reads everything

Event files are not trusted: links are not followed, sizes and counts are bounded, and damage
affects one file only.
"""

from __future__ import annotations

import os
import time

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
from .metrics_appender import MetricsAppender
from .protobuf_wire import MAX_FIELDS, InvalidEventFile, TooManyFields
from .summary_recorder import COPIES, LARGE, SummaryRecorder
from .summary_value import SCALARS, SHORTENED_PREFIX
from .tensorboard_search import EventFiles

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import List, Optional, Set, Tuple

    from .metrics_appender import Source

LEFT_OUT = "tensorboard.left-out"  # tag that describes data missing from the run's metrics
MAX_SCALARS = 10000  # maximum per record
_SHORTENED_PREFIX = SHORTENED_PREFIX.decode("ascii")
_SHORTENED_MESSAGE = "long metric names are shortened and begin with %s" % _SHORTENED_PREFIX
_CHUNK = 256 * 1024
_POLL_SECONDS = 0.1  # maximum duration of a poll
_CLOCK_TOLERANCE = 2.0  # seconds by which clocks may differ: older files are not from this run


class TensorBoardReader:
    """Reader of the event files of one run."""

    def __init__(self, files: EventFiles, target: str, started: float) -> None:
        self._files = files
        self._folder = files.folder
        self._file = MetricsAppender(target)
        self._started = started
        self._older_files: Set[str] = set()
        self._written_messages: Set[str] = set()  # messages already in the file
        self._messages: Set[str] = set()  # messages about unread data, with reasons
        self._recorder = SummaryRecorder(self._folder, self._file, self._messages)
        self.disk_failed = False  # whether the last poll failed

    def poll(self, seconds: float = _POLL_SECONDS, ended: bool = False) -> bool:
        """Read records for at most ``seconds``, and return whether the end was reached.

        Disk errors are retried later.
        """
        deadline = time.monotonic() + seconds
        if not self._files.found and not self._files.left_out:
            return True
        try:
            folders = FolderHandles(self._folder)
        except OSError:
            return True  # the folder no longer exists, so there is nothing to read
        try:
            with folders:
                self._open()
                self._add_sources(folders)
                found = set(self._files.found)
                names = [name for name in self._file.sources if name in found]  # in the order of their creation
                is_complete = all(self._read_file(name, folders, deadline) for name in names)
                if ended:
                    self._recorder.finish(folders)
                self._write_left_out()
        except OSError:
            self.disk_failed = True
            return False
        self.disk_failed = False
        return is_complete

    def _read_file(self, name: str, folders: FolderHandles, deadline: float) -> bool:
        """Read new records of a file until the deadline, and return whether the end was reached."""
        descriptor = open_regular_file(folders, name)
        if descriptor is None:
            return True
        try:
            source = self._file.sources[name]
            while not source.broken and self._read_records(source, descriptor):
                if self._recorder.has_recorded:
                    self._file.add_position(source)
                    self._recorder.has_recorded = False
                self._file.write()
                if time.monotonic() >= deadline:
                    return False
            return True
        finally:
            os.close(descriptor)

    def finish(self, seconds: float = 60.0) -> bool:
        """Read all remaining records within ``seconds``, then close the file."""
        try:
            is_complete = self.poll(seconds, ended=True)
            if not is_complete and not self.disk_failed:
                self._messages.add("not all event files could be read in time")
                self._write_left_out()
            return is_complete
        finally:
            self._file.close()

    def _write_left_out(self) -> None:
        """Record in a tag of the run what is missing from its metrics."""
        messages = self._messages | self._files.left_out
        if messages - self._written_messages:
            self._file.add_tag(LEFT_OUT, "; ".join(sorted(messages)))
        self._file.write()
        self._written_messages = messages

    def _open(self) -> None:
        if not self._file.open():
            return
        self._recorder = SummaryRecorder(self._folder, self._file, self._messages)
        for kind, data in self._file.restored:
            try:
                self._recorder.restore(kind, data)
            except (KeyError, TypeError, ValueError, OverflowError):
                continue  # the script can write to this file, too
        self._file.restored = []

    def _add_sources(self, folders: FolderHandles) -> None:
        """Add new event files in the order of their creation, so that names do not depend on when they are found."""
        new: List[Tuple[float, int, str]] = []
        found = set(self._files.found)
        for index, name in enumerate(self._files.found):
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
        """Read some records, and return whether there may be more."""
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
