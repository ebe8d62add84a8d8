"""Record that every row of the index was verified, to skip the check until the file changes."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from zlib import crc32

_MIN_AGE = 2.0  # seconds; a file modified more recently could change again without a new timestamp
_MAX_LENGTH = 400

FileState = tuple[int, ...]


class VerificationRecord:
    """File next to the index that stores the state of the index and its WAL at the last verification."""

    def __init__(self, database: Path) -> None:
        self._files = (str(database), f"{database}-wal")
        self._path = f"{database}.checked"

    def settled_state(self) -> FileState | None:
        """Return the current state of the files, or None if it is too recent to detect later changes."""
        states = self.file_states()
        newest = max((max(state[3:]) for state in states if state), default=0)
        # If the clock was set back, the state stays too recent, and every read verifies all rows.
        return sum(states, ()) if time.time() - newest / 1e9 > _MIN_AGE else None

    def file_states(self) -> tuple[FileState, ...]:
        """Return the current state of the files, no matter how recent."""
        return tuple(_file_state(path) for path in self._files)

    def is_verified(self, state: FileState | None) -> bool:
        """Return whether the files were verified in the given state."""
        if state is None:
            return False
        try:
            with open(self._path, "rb") as file:
                return file.read(_MAX_LENGTH) == _line(state)
        except OSError:
            return False

    def record(self, state: FileState | None) -> None:
        """Record that all rows are verified. If the record is lost, the check just runs again."""
        if state is None:
            return
        part = f"{self._path}.{os.getpid()}.part"
        with suppress(OSError):
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
            try:
                os.write(descriptor, _line(state))
            finally:
                os.close(descriptor)
            os.replace(part, self._path)


def _file_state(path: str) -> FileState:
    """Return the state of a file.

    It is empty for a missing or empty file, because opening an index creates an empty WAL.
    """
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return (
        (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns) if status.st_size else ()
    )


def _line(state: FileState) -> bytes:
    text = " ".join(str(number) for number in state).encode()
    return b"%s %08x\n" % (text, crc32(text))
