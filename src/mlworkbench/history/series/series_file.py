"""SQLite file with a run's series. If damaged, it is deleted and rebuilt from the metrics files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import apsw

from ...remote.shared import machine
from ..database import DAMAGE_ERRORS, transact
from . import series_schema

Result = TypeVar("Result")
Body = Callable[[apsw.Connection], Result]

_WAIT = 60.0  # seconds to wait for another process that writes the same file
_MEMORY = ":memory:"
_DAMAGE_ERRORS = (*DAMAGE_ERRORS, apsw.SQLError)  # SQLError: unexpected tables
# The disk is full, the folder is missing or not writable, or another program has locked the file.
_REFUSED_ERRORS = (
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.BusyError,
    apsw.PermissionsError,
)


class SeriesFile:
    """Connection to a series file, opened on first use.

    If the file cannot be opened or written, an empty in-memory database replaces it, so that metrics
    remain readable even on a full disk. Writers hold a separate lock, because a damaged file must not
    be replaced while its journal is in use.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._in_memory = False

    def exists(self) -> bool:
        return self._in_memory or _identity(self._path) is not None

    def read(self, body: Body[Result], refill: Callable[[], None]) -> Result:
        """Run ``body`` in a read transaction.

        If it fails, ``refill`` is called to rebuild the data, and ``body`` runs again.
        """
        for _ in range(2):
            try:
                return transact(self._open(), body, "BEGIN")
            except _DAMAGE_ERRORS:
                self.delete()
            except _REFUSED_ERRORS:
                self._switch_to_memory()
            refill()
        try:
            return transact(self._open(), body, "BEGIN")
        except (*_DAMAGE_ERRORS, *_REFUSED_ERRORS):
            self._switch_to_memory()
            refill()
            return transact(self._open(), body, "BEGIN")

    def write(self, step: Body[bool]) -> None:
        """Run ``step`` in successive transactions until it returns False."""
        try:
            self._write(step)
            return
        except _DAMAGE_ERRORS:
            self.delete()
        except (*_REFUSED_ERRORS, OSError):
            self._switch_to_memory()
        try:
            self._write(step)
        except (*_DAMAGE_ERRORS, *_REFUSED_ERRORS, OSError):
            self._switch_to_memory()
            self._write(step)

    def _write(self, step: Body[bool]) -> None:
        with self._exclusive_lock() as is_exclusive:
            if not is_exclusive:
                return  # another process is writing: the existing content can be read
            if not self.exists():
                self._create()
            while transact(self._open(), step):
                pass

    def delete(self) -> None:
        """Delete the file if it is still the one that this object opened."""
        identity = self._identity
        self._close()
        if self._in_memory:
            return
        try:
            with self._exclusive_lock() as is_exclusive:
                if is_exclusive and identity == _identity(self._path):
                    for suffix in ("-journal", ""):  # delete the database last: a journal must not outlive it
                        with suppress(FileNotFoundError):
                            os.unlink(self._path + suffix)
        except OSError:
            self._switch_to_memory()

    def close(self) -> None:
        """Close the connection. The next use opens the file again, even after a switch to memory."""
        self._close()
        self._in_memory = False

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> apsw.Connection:
        if self._connection is not None and (self._in_memory or self._identity == _identity(self._path)):
            return self._connection
        self._close()
        if self._in_memory:
            self._connection = apsw.Connection(_MEMORY)
            series_schema.create(self._connection)
            return self._connection
        self._identity = _identity(self._path)  # before reading, so that damage is attributed to this file
        connection = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(int(_WAIT * 1000))
            connection.execute("PRAGMA synchronous = OFF")
            transact(connection, series_schema.check, "BEGIN")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _create(self) -> None:
        """Create the file under a temporary name first, so that no process opens an incomplete one."""
        new = f"{self._path}.new"
        with suppress(FileNotFoundError):
            os.unlink(new)
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = apsw.Connection(new)
        try:
            connection.execute("PRAGMA journal_mode = OFF")
            transact(connection, series_schema.create)
        finally:
            connection.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path + "-journal")  # left over from a deleted file
        os.replace(new, self._path)

    def _switch_to_memory(self) -> None:
        self._close()
        self._in_memory = True

    @contextmanager
    def _exclusive_lock(self) -> Iterator[bool]:
        """Hold the write lock. Yield whether this process acquired it."""
        if self._in_memory:
            yield True
            return
        deadline = time.monotonic() + _WAIT
        while (lock := machine.lock(f"{self._path}.lock")) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                os.close(lock)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
