"""Read files to which a script appends, while it does so, and record their data in a metrics file of the run.

    reader.poll()        # regularly: takes a fraction of a second at most
    reader.finish()      # after the script has ended: reads everything

The files are not trusted: links are not followed, sizes and counts are bounded, and damage affects one file only.
"""

from __future__ import annotations

import os
import time

from ..run_reader import open_regular_file
from ..shared.folder_tree import FolderHandles
from .file_search import TrackingFiles
from .metrics_appender import MetricsAppender

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Set

    from .metrics_appender import Source

_POLL_SECONDS = 0.1  # maximum duration of a poll


class LogFileReader:
    """Reader of one kind of file. Subclasses find the sources and read their records."""

    kind = ""  # of the files
    left_out_tag = ""  # tag that describes data missing from the run's metrics

    def __init__(self, files: TrackingFiles, target: str, started: float) -> None:
        self._files = files
        self._folder = files.folder
        self._file = MetricsAppender(target)
        self._started = started
        self._written_messages: Set[str] = set()  # messages already in the file
        self._messages: Set[str] = set()  # messages about unread data, with reasons
        self._has_ended = False  # whether the script has ended, so that the files no longer change
        self.disk_failed = False  # whether the last poll failed

    # -- for subclasses --------------------------------------------------------------------------------------

    def _add_sources(self, folders: FolderHandles) -> Dict[str, str]:
        """Add new files as sources. Return the path of each source that can be read."""
        raise NotImplementedError

    def _read_records(self, source: Source, descriptor: int) -> bool:
        """Read some records, and return whether there may be more."""
        raise NotImplementedError

    def _reset(self) -> None:
        """Forget everything that ``_restore`` restores: the metrics file is read again."""

    def _restore(self, kind: str, data: Dict[str, Any]) -> None:
        """Apply a record of an earlier supervisor. May raise KeyError, TypeError, ValueError, and OverflowError."""

    def _end(self, folders: FolderHandles) -> None:
        """Record what is known only after all records were read."""

    # -- reading -------------------------------------------------------------------------------------------

    def poll(self, seconds: float = _POLL_SECONDS, ended: bool = False) -> bool:
        """Read records for at most ``seconds``, and return whether the end was reached.

        Disk errors are retried later.
        """
        deadline = time.monotonic() + seconds
        self._has_ended = ended
        if not self._files.found[self.kind] and not self._files.left_out:
            return True
        try:
            folders = FolderHandles(self._folder)
        except OSError:
            return True  # the folder no longer exists, so there is nothing to read
        try:
            with folders:
                self._open()
                paths = self._add_sources(folders)
                names = [name for name in self._file.sources if name in paths]  # in the order of their creation
                is_complete = all(self._read_file(name, paths[name], folders, deadline) for name in names)
                if ended:
                    self._end(folders)
                self._write_left_out()
        except OSError:
            self.disk_failed = True
            return False
        self.disk_failed = False
        return is_complete

    def _read_file(self, name: str, path: str, folders: FolderHandles, deadline: float) -> bool:
        """Read new records of a file until the deadline, and return whether the end was reached."""
        descriptor = open_regular_file(folders, path)
        if descriptor is None:
            return True
        try:
            source = self._file.sources[name]
            while not source.broken and self._read_records(source, descriptor):
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
                self._messages.add("not all %s could be read in time" % self.kind)
                self._write_left_out()
            return is_complete
        finally:
            self._file.close()

    def _write_left_out(self) -> None:
        """Record in a tag of the run what is missing from its metrics."""
        messages = self._messages | self._files.left_out
        if messages - self._written_messages:
            self._file.add_tag(self.left_out_tag, "; ".join(sorted(messages)))
        self._file.write()
        self._written_messages = messages

    def _open(self) -> None:
        if not self._file.open():
            return
        self._reset()
        for kind, data in self._file.restored:
            try:
                self._restore(kind, data)
            except (KeyError, TypeError, ValueError, OverflowError):
                continue  # the script can write to this file, too
        self._file.restored = []
