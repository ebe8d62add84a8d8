"""The SQLite file of a run's points. All in it comes from the metric files: a damaged one is deleted and made anew."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import apsw

from ...remote.shared import machine
from ..database import DAMAGE, transact
from . import tables

Answer = TypeVar("Answer")
Body = Callable[[apsw.Connection], Answer]

_WAIT = 60.0  # seconds for another process, which is at the same work
_MEMORY = ":memory:"
_DAMAGE = (*DAMAGE, apsw.SQLError)  # the latter: tables that are not ours
# The disk is full, the folder is gone or not ours, another program holds the file.
_REFUSED = (apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.BusyError, apsw.PermissionsError)


class SeriesFile:
    """One connection, opened when first needed.

    Where the disk refuses, it is a database in memory that starts empty: a full disk keeps nobody from looking.
    Writers hold a lock of their own, because a damaged file must not be replaced while its journal is in use.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._in_memory = False

    def exists(self) -> bool:
        return self._in_memory or _identity(self._path) is not None

    def read(self, body: Body[Answer], refill: Callable[[], None]) -> Answer:
        """Run ``body`` over one unchanging state. It may run again, after ``refill`` has filled an empty file."""
        for _ in range(2):
            try:
                return transact(self._open(), body, "BEGIN")
            except _DAMAGE:
                self.forget()
            except _REFUSED:
                self._turn_to_memory()
            refill()
        try:
            return transact(self._open(), body, "BEGIN")
        except (*_DAMAGE, *_REFUSED):
            self._turn_to_memory()
            refill()
            return transact(self._open(), body, "BEGIN")

    def write(self, step: Body[bool]) -> None:
        """Run ``step``, each time in a transaction, as long as it says that there is more to do."""
        try:
            self._write(step)
            return
        except _DAMAGE:
            self.forget()
        except (*_REFUSED, OSError):
            self._turn_to_memory()
        try:
            self._write(step)
        except (*_DAMAGE, *_REFUSED, OSError):
            self._turn_to_memory()
            self._write(step)

    def _write(self, step: Body[bool]) -> None:
        with self._alone() as alone:
            if not alone:
                return  # it is being done, and takes its time: what is there can be read
            if not self.exists():
                self._create()
            while transact(self._open(), step):
                pass

    def forget(self) -> None:
        """Delete the file, if it is still the one that was opened here."""
        opened = self._identity
        self._close()
        if self._in_memory:
            return
        try:
            with self._alone() as alone:
                if alone and opened == _identity(self._path):
                    for ending in ("-journal", ""):  # the file last: a journal must not outlive it
                        with suppress(FileNotFoundError):
                            os.unlink(self._path + ending)
        except OSError:
            self._turn_to_memory()

    def close(self) -> None:
        """Can be used again: then it is opened again, and the disk asked again."""
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
            tables.create(self._connection)
            return self._connection
        self._identity = _identity(self._path)  # before anything is read: what is damaged is this one
        connection = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(int(_WAIT * 1000))
            connection.execute("PRAGMA synchronous = OFF")
            transact(connection, tables.check, "BEGIN")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _create(self) -> None:
        """Under another name first: nobody meets it half made."""
        new = f"{self._path}.new"
        with suppress(FileNotFoundError):
            os.unlink(new)
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = apsw.Connection(new)
        try:
            connection.execute("PRAGMA journal_mode = OFF")
            transact(connection, tables.create)
        finally:
            connection.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path + "-journal")  # of a file that somebody deleted
        os.replace(new, self._path)

    def _turn_to_memory(self) -> None:
        self._close()
        self._in_memory = True

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether this process is the one that writes."""
        if self._in_memory:
            yield True
            return
        patience = time.monotonic() + _WAIT
        while (held := machine.lock(f"{self._path}.lock")) is None and time.monotonic() < patience:
            time.sleep(0.01)
        try:
            yield held is not None
        finally:
            if held is not None:
                os.close(held)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino
