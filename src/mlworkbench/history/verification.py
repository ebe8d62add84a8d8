"""Record which parts of the index were verified, to skip their check until the file changes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from zlib import crc32

_MIN_AGE = 2.0  # seconds; a file modified more recently could change again without a new timestamp
_MAX_LENGTH = 8192
_MAX_PARTS = 200

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

    def verified_parts(self, state: FileState | None) -> set[str]:
        """Return the parts of the index that were verified in the given state."""
        if state is None:
            return set()
        try:
            with open(self._path, encoding="ascii", errors="replace", newline="") as file:
                content = file.read(_MAX_LENGTH)
        except OSError:
            return set()
        parts = content.partition(";")[2].rpartition(" ")[0].split()
        return set(parts) if content == _line(state, parts) else set()

    def record(self, state: FileState | None, parts: Iterable[str]) -> None:
        """Record that these parts are verified. If the record is lost, the check just runs again."""
        if state is None:
            return
        part = f"{self._path}.{os.getpid()}.part"
        with suppress(OSError):
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
            try:
                os.write(descriptor, _line(state, sorted(parts)[:_MAX_PARTS]).encode("ascii"))
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


def _line(state: FileState, parts: Iterable[str]) -> str:
    text = f"{' '.join(map(str, state))};{' '.join(parts)}"
    return f"{text} {crc32(text.encode('ascii', 'replace')):08x}\n"
