"""Scalars of TensorBoard event files below a run's folder → ``metrics/tensorboard``, while they are being written.

    files = EventFiles(run.work)
    board = Board(files, os.path.join(run.metrics, "tensorboard"), started)
    files.look()        # now and then
    board.look()        # now and then: takes a fraction of a second, at most
    board.finish()      # after the end of the script: everything

A script's file is hostile: links are not followed, sizes and counts are bounded, damage ends that file only.
"""

from __future__ import annotations

import os
import time

from ..serve import open_beneath, read_open
from ..shared.tree import Folders
from .appended import Appended
from .eventfile import (
    CUT,
    HEAD,
    LONGEST,
    MOST_FIELDS,
    TAIL,
    Broken,
    TooManyFields,
    event,
    record_length,
    records,
    shortened,
)
from .search import EventFiles

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Optional, Set

    from .appended import Source

PHASES = frozenset("train training val valid validation test testing eval evaluation dev".split())
LEFT_OUT = "tensorboard.left-out"  # tag of a run that says which scalars are not among its metrics
MOST_SCALARS = 10000  # of one record
_LONGEST_PREFIX = 200  # bytes: it is repeated for each scalar
_CUT = CUT.decode("ascii")
_SHORTENED = "long metric names are shortened and begin with %s" % _CUT
_CHUNK = 256 * 1024
_TURN = 0.1  # seconds of one look
_EARLIER = 2.0  # seconds that clocks may differ: a file that began before the script is not the script's


class Board:
    """The event files of one run."""

    def __init__(self, files: EventFiles, target: str, started: float) -> None:
        self._files = files
        self._folder = files.folder
        self._file = Appended(target)
        self._started = started
        self._older: Set[str] = set()
        self._left_out: Set[str] = set()  # as they are in the file already
        self._skipped: Set[str] = set()  # sentences
        self.refused = False  # by the disk, the last time

    def look(self, seconds: float = _TURN) -> bool:
        """Take in what is new, for so long; whether that was all. A disk that refuses is tried again next time."""
        end = time.monotonic() + seconds
        if not self._files.found and not self._files.left_out:
            return True
        try:
            folders = Folders(self._folder)
        except OSError:
            return True  # the folder is away, and with it all that is new
        try:
            with folders:
                self._file.open()
                whole = all(self._take(name, folders, end) for name in self._files.found)
                self._write_left_out()
        except OSError:
            self.refused = True
            return False
        self.refused = False
        return whole

    def _take(self, name: str, folders: Folders, end: float) -> bool:
        """Take in what is new in one file, until then; whether that was all."""
        descriptor = open_beneath(folders, name)
        if descriptor is None:
            return True
        try:
            source = self._file.sources.get(name) or self._begin(name, descriptor)
            while source is not None and not source.broken and self._take_some(source, descriptor):
                self._file.write()
                if time.monotonic() >= end:
                    return False
            return True
        finally:
            os.close(descriptor)

    def finish(self, seconds: float = 60.0) -> bool:
        """Everything that is there, for so long at most; then let go of the file."""
        try:
            whole = self.look(seconds)
            if not whole and not self.refused:
                self._skipped.add("not all event files could be read in time")
                self._write_left_out()
            return whole
        finally:
            self._file.close()

    def _write_left_out(self) -> None:
        """A tag of the run says what is not among its metrics."""
        sentences = self._skipped | self._files.left_out
        if sentences - self._left_out:
            self._file.add_tag(LEFT_OUT, "; ".join(sorted(sentences)))
        self._file.write()
        self._left_out = sentences

    def _begin(self, name: str, descriptor: int) -> "Optional[Source]":
        """A new source; None if nothing is in it yet, or if it came with the code: another run wrote it."""
        if name in self._older:
            return None
        head = read_open(descriptor, 0, 4096)
        try:
            first = next(records(head), None)
            when = None if first is None else event(first[1])[0]
        except Broken:
            when = 0.0
        if when is None:
            return None
        if when < self._started - _EARLIER:
            self._older.add(name)
            return None
        return self._file.add_source(name, self._prefix(name))

    def _prefix(self, name: str) -> str:
        """Nothing for the first folder; ``train/`` and the like where a folder says so; else the folder's path."""
        folder = os.path.dirname(name).replace(os.sep, "/")
        own = folder.rpartition("/")[2]
        if own.lower() in PHASES:
            return own + "/"
        for source in self._file.sources.values():
            if source.prefix == "" and os.path.dirname(source.name).replace(os.sep, "/") != folder:
                return self._short_prefix(folder) + "/"
        return ""

    def _short_prefix(self, folder: str) -> str:
        name = os.fsencode(folder)
        if len(name) > _LONGEST_PREFIX:
            self._skipped.add(_SHORTENED)
        return shortened(name, _LONGEST_PREFIX)

    # -- what is in them ------------------------------------------------------------------------------------

    def _take_some(self, source: "Source", descriptor: int) -> bool:
        """Take in some records; whether there may be more."""
        if os.fstat(descriptor).st_size <= source.at:
            return False
        data = read_open(descriptor, source.at, _CHUNK)
        start = source.at
        try:
            for at, record in records(data):
                source.at = start + at
                self._add(source, record)
                source.at, source.done = start + at + HEAD + len(record) + TAIL, 0
            if source.at > start:
                return True
            length = record_length(data, 0)
            if length is None:
                return False
            return self._take_long(source, descriptor, length)
        except Broken:
            source.broken = True
            return False

    def _take_long(self, source: "Source", descriptor: int, length: int) -> bool:
        """One record that is longer than what is read at a time."""
        whole = HEAD + length + TAIL
        if os.fstat(descriptor).st_size < source.at + whole:
            return False
        if length > LONGEST:
            self._skipped.add("records of more than %d bytes, mostly images and graphs, are not read" % LONGEST)
        else:
            for _, record in records(read_open(descriptor, source.at, whole)):
                self._add(source, record)
        source.at, source.done = source.at + whole, 0
        return True

    def _add(self, source: "Source", record: bytes) -> None:
        try:
            for nth, (tag, value, when, step) in enumerate(event(record)[1]):
                if nth >= MOST_SCALARS:
                    self._skipped.add("only the first %d scalars of a record are read" % MOST_SCALARS)
                    return
                if nth >= source.done:
                    source.done = nth
                    if tag.startswith(_CUT):
                        self._skipped.add(_SHORTENED)
                    self._file.add(source, tag, value, when or self._started, step)
        except TooManyFields:
            self._skipped.add("only the first %d fields of a record are read" % MOST_FIELDS)
