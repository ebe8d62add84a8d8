"""The SQLite file under the history: opening, waiting, noticing damage. Knows nothing of runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw

from ..errors import HistoryError
from ..remote import machine

Answer = TypeVar("Answer")
Row = tuple[Any, ...]

VERSION = 1
_WAIT_MS = 60_000
_CHECKED_BELOW = 8 * 1024 * 1024
_DAMAGE = (apsw.CorruptError, apsw.NotADBError)
# WAL needs memory shared between all writers, which a network file system does not give.
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "lustre", "beegfs", "gpfs", "afs", "ceph")

_SCHEMA = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, number INTEGER NOT NULL, key TEXT NOT NULL UNIQUE, project TEXT NOT NULL,
    created REAL NOT NULL, status TEXT NOT NULL, final INTEGER NOT NULL, hidden INTEGER NOT NULL,
    spec TEXT NOT NULL, state TEXT NOT NULL, reading TEXT NOT NULL, submitter TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_by_project ON runs (project, created);
CREATE INDEX runs_by_time ON runs (created);
CREATE INDEX runs_unfinished ON runs (final) WHERE final = 0;
"""


class Database:
    """One connection, opened when first needed. A damaged file is set aside and refilled by ``refill``."""

    def __init__(self, path: Path, refill: Callable[[apsw.Connection], None]) -> None:
        self._path = path
        self._refill = refill
        self._connection: apsw.Connection | None = None
        self._file: tuple[int, int] | None = None

    def read(self, query: str, values: tuple[Any, ...] = ()) -> list[Row]:
        return self._safely(lambda connection: list(connection.execute(query, values)))

    def write(self, body: Callable[[apsw.Connection], Answer]) -> Answer:
        """Run ``body`` in a transaction that is on disk when this returns. ``body`` may run twice."""
        return self._safely(lambda connection: _transact(connection, body))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _safely(self, body: Callable[[apsw.Connection], Answer]) -> Answer:
        for _ in range(5):
            try:
                connection = self._open()
                answer = body(connection)
            except _DAMAGE:
                self._set_aside()
                continue
            except apsw.BusyError as error:
                raise HistoryError(
                    f"{self._path} was locked by another program for {_WAIT_MS // 1000} s",
                    "look for a program that holds it open: fuser " + str(self._path),
                ) from error
            except (apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError) as error:
                self.close()
                raise _unusable(self._path, error) from error
            if self._is_current():
                return answer
            self.close()  # another process has set the file aside: what we did went into the old one
        raise HistoryError(f"the run history {self._path} is damaged again and again", "check the disk")

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            self._file = _identity(self._path)  # before anything is read: what is damaged is this one
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path))
        connection.set_busy_timeout(_WAIT_MS)
        mode = "DELETE" if _on_network(self._path) else "WAL"
        if str(_value(connection, "PRAGMA journal_mode")).upper() != mode:
            _switch(connection, mode)
        connection.execute("PRAGMA synchronous = FULL")
        version = _value(connection, "PRAGMA user_version")
        if version > VERSION:
            raise HistoryError(
                f"{self._path} was written by a newer mlw (version {version}, this one knows {VERSION})",
                "upgrade mlworkbench, or set MLW_HOME to another folder",
            )
        if version < VERSION:
            _transact(connection, self._create)
        elif not _is_sound(connection, self._path):
            connection.close()
            raise apsw.CorruptError("quick_check")
        return connection

    def _create(self, connection: apsw.Connection) -> None:
        if _value(connection, "PRAGMA user_version") == VERSION:
            return  # another process was quicker
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        self._refill(connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")

    def _is_current(self) -> bool:
        return self._file == _identity(self._path)

    def _set_aside(self) -> None:
        """Keep the damaged file for whoever wants to look at it; the next open makes a new one."""
        self.close()
        with _alone(self._path):
            if not self._is_current():
                return  # another process has done it
            stamp = time.strftime("%Y%m%d-%H%M%S") + f"-{os.getpid()}"
            for ending in ("-wal", "-shm", ""):  # the file itself last: until then nobody makes a new one
                try:
                    os.rename(f"{self._path}{ending}", f"{self._path}.damaged-{stamp}{ending}")
                except FileNotFoundError:
                    continue


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time sets a damaged file aside."""
    held = None
    while held is None:
        held = machine.lock(f"{path}.lock")
        if held is None:
            time.sleep(0.01)
    try:
        yield
    finally:
        os.close(held)


def _unusable(path: Path, error: apsw.Error) -> HistoryError:
    free = _free(path)
    if free < 1024 * 1024:
        return HistoryError(f"the disk that holds {path} is full", "make room on it; runs go on meanwhile")
    return HistoryError(f"the run history {path} cannot be used: {error}")


def _free(path: Path) -> int:
    if not hasattr(os, "statvfs"):
        return 1 << 60
    facts = os.statvfs(path.parent)
    return facts.f_bavail * facts.f_frsize


def _is_sound(connection: apsw.Connection, path: Path) -> bool:
    tables = _value(connection, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'runs'")
    if not tables:
        return False
    return path.stat().st_size >= _CHECKED_BELOW or _value(connection, "PRAGMA quick_check(1)") == "ok"


def _transact(connection: apsw.Connection, body: Callable[[apsw.Connection], Answer]) -> Answer:
    # IMMEDIATE: a transaction that reads first and then writes is refused at once if another wrote meanwhile.
    connection.execute("BEGIN IMMEDIATE")
    try:
        answer = body(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return answer


def _switch(connection: apsw.Connection, mode: str) -> None:
    """SQLite does not wait here: when several processes make the file at once, all but one are refused."""
    patience = time.monotonic() + _WAIT_MS / 1000
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode = {mode}")
            return
        except apsw.BusyError:
            if time.monotonic() > patience:
                raise
            time.sleep(0.005)


def _value(connection: apsw.Connection, query: str) -> Any:
    for row in connection.execute(query):
        return row[0]
    return None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        facts = path.stat()
    except FileNotFoundError:
        return None
    return facts.st_dev, facts.st_ino


def _on_network(path: Path) -> bool:
    """Whether the file lies on a network file system (Linux; elsewhere it is taken for local)."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return False
    folder = str(path.parent.resolve())
    best = max(
        (mount for mount in mounts if folder == mount[1] or folder.startswith(mount[1].rstrip("/") + "/")),
        key=lambda mount: len(mount[1]),
        default=["", "", ""],
    )
    return best[2] in _NETWORK
