"""Copy scalars from TensorBoard event files in the working folder while they are written.

The scalars are written to ``metrics/tensorboard``.

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
    MAX_FIELDS,
    MAX_RECORD,
    SHORTENED_PREFIX,
    TAIL_SIZE,
    InvalidEventFile,
    TooManyFields,
    iterate_records,
    parse_event,
    record_length,
    shorten,
)
from .metrics_appender import MetricsAppender
from .tensorboard_search import EventFiles

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Optional, Set

    from .metrics_appender import Source

PHASES = frozenset("train training val valid validation test testing eval evaluation dev".split())
LEFT_OUT = "tensorboard.left-out"  # tag that describes data missing from the run's metrics
MAX_SCALARS = 10000  # maximum per record
_MAX_PREFIX = 200  # maximum bytes, because the prefix is repeated for each scalar
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
        self.disk_failed = False  # whether the last poll failed

    def poll(self, seconds: float = _POLL_SECONDS) -> bool:
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
                self._file.open()
                is_complete = all(self._read_file(name, folders, deadline) for name in self._files.found)
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
            source = self._file.sources.get(name) or self._add_source(name, descriptor)
            while source is not None and not source.broken and self._read_records(source, descriptor):
                self._file.write()
                if time.monotonic() >= deadline:
                    return False
            return True
        finally:
            os.close(descriptor)

    def finish(self, seconds: float = 60.0) -> bool:
        """Read all remaining records within ``seconds``, then close the file."""
        try:
            is_complete = self.poll(seconds)
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

    def _add_source(self, name: str, descriptor: int) -> "Optional[Source]":
        """Return a new source, or None if the file is still empty or was part of the snapshot."""
        if name in self._older_files:
            return None
        head = read_descriptor(descriptor, 0, 4096)
        try:
            first = next(iterate_records(head), None)
            when = None if first is None else parse_event(first[1])[0]
        except InvalidEventFile:
            when = 0.0
        if when is None:
            return None
        if when < self._started - _CLOCK_TOLERANCE:
            self._older_files.add(name)
            return None
        return self._file.add_source(name, self._prefix(name))

    def _prefix(self, name: str) -> str:
        """Return the prefix for a file's metrics.

        The prefix is the phase, such as ``train/``, if the folder is named after one. Otherwise, it is empty for
        the first folder, and the folder's path for all others.
        """
        folder = os.path.dirname(name).replace(os.sep, "/")
        last = folder.rpartition("/")[2]
        if last.lower() in PHASES:
            return last + "/"
        for source in self._file.sources.values():
            if source.prefix == "" and os.path.dirname(source.name).replace(os.sep, "/") != folder:
                return self._short_prefix(folder) + "/"
        return ""

    def _short_prefix(self, folder: str) -> str:
        name = os.fsencode(folder)
        if len(name) > _MAX_PREFIX:
            self._messages.add(_SHORTENED_MESSAGE)
        return shorten(name, _MAX_PREFIX)

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
                self._add_scalars(source, record)
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
        else:
            for _, record in iterate_records(read_descriptor(descriptor, source.offset, size)):
                self._add_scalars(source, record)
        source.offset, source.values_done = source.offset + size, 0
        return True

    def _add_scalars(self, source: "Source", record: bytes) -> None:
        try:
            for index, (tag, value, when, step) in enumerate(parse_event(record)[1]):
                if index >= MAX_SCALARS:
                    self._messages.add("only the first %d scalars of a record are read" % MAX_SCALARS)
                    return
                if index >= source.values_done:
                    source.values_done = index
                    if tag.startswith(_SHORTENED_PREFIX):
                        self._messages.add(_SHORTENED_MESSAGE)
                    self._file.add(source, tag, value, when or self._started, step)
        except TooManyFields:
            self._messages.add("only the first %d fields of a record are read" % MAX_FIELDS)
