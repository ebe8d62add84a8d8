"""Open and lock the history's SQLite file, detect damage, and rebuild a damaged file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw

from ..errors import HistoryError
from ..remote.shared import machine
from ..remote.shared.failpoint import failpoint
from .index_schema import LATE_INDEX, VERSION, Step, create, has_expected_schema, rename_old_tables
from .lost_write_detection import WriteCounter
from .verification import FileState, VerificationRecord

Result = TypeVar("Result")

_WAIT_MS = 60_000
_MAX_FULL_CHECK = 8 * 1024 * 1024  # bytes; takes 10 ms. In larger files, rows are verified when they are read
_MAX_VERSION = 1000  # higher than any version that mlw will use
_MIN_FREE = 64 * 1024 * 1024
_CACHE = 64 * 1024 * 1024  # bytes, for building a file, because keys arrive in random order
# Errors that are raised for damaged pages, either by SQLite or when decoding its results.
DAMAGE_ERRORS = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    apsw.FormatError,
    UnicodeDecodeError,
)
# WAL requires memory shared by all writers, which network file systems do not provide.
_NETWORK_FILE_SYSTEMS = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "fuse.sshfs",
    "9p",
    "lustre",
    "beegfs",
    "gpfs",
    "afs",
    "ceph",
)


class Damaged(apsw.CorruptError):
    """Error for a damaged file: the data read differs from the data written."""


class Database:
    """A connection to the index that is opened on first use.

    A damaged file is renamed, and ``refill`` fills a new one.
    """

    def __init__(self, path: Path, refill: Step, migrate: Step) -> None:
        self._path = path
        self._refill = refill
        self._migrate = migrate
        self._write_counter = WriteCounter(f"{path}.mark")
        self._verification = VerificationRecord(path)
        self._file_state: FileState | None = None
        self._file_states: tuple[FileState, ...] = ()  # states of index and WAL before the current read
        self._verified_state: tuple[object, ...] | None = None
        self._verified_parts: set[str] = set()  # what was verified in this state
        self._connection: apsw.Connection | None = None
        self._file: tuple[int, int] | None = None

    def read(self, body: Callable[[apsw.Connection], Result]) -> Result:
        """Run ``body`` in a read transaction. ``body`` may run twice."""

        def read_state(connection: apsw.Connection) -> Result:
            # Get the state before reading, so that later changes have newer timestamps.
            self._file_state = self._verification.settled_state()
            self._file_states = self._verification.file_states()
            return transact(connection, body, "BEGIN")

        return self._run_repairing(read_state)

    def check(self, connection: apsw.Connection, part: str, verify: Step) -> None:
        """Call ``verify`` within ``read`` unless the file is unchanged since its last verification of this part."""
        file_state = self._file_state
        if _is_on_network(self._path):  # timestamps are delayed on network file systems
            return verify(connection)
        # SQLite detects every write, including two writes within the resolution of file timestamps.
        state = (self._file_states, _query_value(connection, "PRAGMA data_version"), connection.total_changes())
        is_recordable = file_state is not None and file_state[:2] == self._file
        if state != self._verified_state:
            self._verified_parts = self._verification.verified_parts(file_state) if is_recordable else set()
            self._verified_state = state
        if part not in self._verified_parts:
            verify(connection)
            self._verified_parts.add(part)
            if is_recordable:
                self._verification.record(file_state, self._verified_parts)

    def write(self, body: Callable[[apsw.Connection], Result]) -> Result:
        """Run ``body`` in a write transaction and return once it is on disk. ``body`` may run twice."""
        return self._run_repairing(lambda connection: self._commit(connection, body))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._verified_state = None

    def _run_repairing(self, body: Callable[[apsw.Connection], Result]) -> Result:
        for _ in range(5):
            try:
                connection = self._open()
                result = body(connection)
            except DAMAGE_ERRORS:
                self._set_aside()
                continue
            except apsw.BusyError as error:
                raise HistoryError(
                    f"{self._path} was locked by another program for {_WAIT_MS // 1000} s",
                    "find the program that has it open: fuser " + str(self._path),
                    more="history-unusable",
                ) from error
            except (apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError) as error:
                if _is_damage(self._path, error):
                    self._set_aside()
                    continue
                self.close()
                raise _unusable_error(self._path, error) from error
            if self._is_current():
                return result
            self.close()  # another process renamed the file, so the transaction used the old one
        message = f"the run history {self._path} was damaged repeatedly"
        raise HistoryError(message, "check the disk", more="history-damaged")

    def _commit(self, connection: apsw.Connection, body: Callable[[apsw.Connection], Result]) -> Result:
        def counted(connection: apsw.Connection) -> tuple[Result, int]:
            before = connection.total_changes()
            result = body(connection)
            return result, _increment_generation(connection) if connection.total_changes() != before else 0

        result, generation = transact(connection, counted)
        if generation:
            # Write only after the commit is on disk: the counter must never be ahead of the index.
            self._write_counter.write(generation)
        return result

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            if not _size(self._path):
                self._build()
            self._file = _identity(self._path)  # before reading, so that damage is attributed to this file
            connection = apsw.Connection(str(self._path))
            try:
                self._prepare(connection)
            except apsw.SQLError as error:  # unknown format or unknown tables
                connection.close()
                raise Damaged(str(error)) from error
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: apsw.Connection) -> None:
        expected = self._write_counter.read()  # before reading the file: another process may write in between
        connection.set_busy_timeout(_WAIT_MS)
        mode = "DELETE" if _is_on_network(self._path) else "WAL"
        if str(_query_value(connection, "PRAGMA journal_mode")).upper() != mode:
            _set_journal_mode(connection, mode)
        connection.execute("PRAGMA synchronous = FULL")
        version = _query_value(connection, "PRAGMA user_version")
        if VERSION < version < _MAX_VERSION:
            raise HistoryError(
                f"{self._path} was written by a newer mlw (version {version}; this one supports {VERSION})",
                "upgrade mlworkbench, or set MLW_HOME to another folder",
                more="history-unusable",
            )
        if version in range(1, VERSION):
            transact(connection, self._upgrade)
        elif version != VERSION or not _is_sound(connection, self._path):
            raise Damaged("check of the whole file")
        if generation(connection) < expected:
            raise Damaged("writes are lost")  # SQLite silently truncates a damaged WAL

    def _build(self) -> None:
        """Build the file from the run folders under a temporary name, then publish it atomically.

        The history is unusable in the meantime, because its keys and numbers are unknown. One process
        builds the file while the others wait.
        """
        new = f"{self._path}.new"
        with _exclusive_lock(self._path):
            if _size(self._path):
                return  # another process was faster
            _unlink(new)
            try:
                self._fill(new)
                failpoint("filled")
                self._rename_aside()  # a WAL without its database must not be applied to the new file
                _publish(new, self._path)
            finally:
                _unlink(new)

    def _fill(self, path: str) -> None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = apsw.Connection(path)
        try:
            # An incomplete file is useless, so the file is synced only once, when it is complete.
            for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE // 1024}"):
                connection.execute(f"PRAGMA {setting}")
            transact(connection, self._create)
        finally:
            connection.close()
        _sync(path)

    def _create(self, connection: apsw.Connection) -> None:
        create(connection)
        self._start(connection, self._refill)

    def _upgrade(self, connection: apsw.Connection) -> None:
        if _query_value(connection, "PRAGMA user_version") == VERSION:
            return  # another process was faster
        rename_old_tables(connection)
        self._start(connection, self._migrate)

    def _start(self, connection: apsw.Connection, fill_tables: Step) -> None:
        connection.execute("INSERT INTO account VALUES (1, 0, 0, 0, 0, ?, 0)", (self._write_counter.read() + 1,))
        fill_tables(connection)
        connection.execute(LATE_INDEX)
        connection.execute(f"PRAGMA user_version = {VERSION}")

    def _is_current(self) -> bool:
        return self._file == _identity(self._path)

    def _set_aside(self) -> None:
        """Rename the damaged file to keep it for inspection. The next open creates a new one."""
        self.close()
        with _exclusive_lock(self._path):
            if self._is_current():  # otherwise, another process has renamed it
                self._rename_aside()

    def _rename_aside(self) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S") + f"-{os.getpid()}"
        for ending in ("-wal", "-shm", ""):  # database last, so that no process creates a new one too early
            with suppress(FileNotFoundError):
                os.rename(f"{self._path}{ending}", f"{self._path}.damaged-{stamp}{ending}")


@contextmanager
def _exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the lock for renaming a damaged file or creating a new one."""
    lock = None
    while lock is None:
        lock = machine.lock(f"{path}.lock")
        if lock is None:
            time.sleep(0.01)
    try:
        yield
    finally:
        os.close(lock)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _publish(new: str, path: Path) -> None:
    """Move the new file into place unless one exists: locks may not work on a network file system."""
    try:
        os.link(new, path)
    except FileExistsError:
        return
    except OSError:  # hard links are not supported
        os.rename(new, path)
    machine.sync_folder(str(path.parent))


def _unusable_error(path: Path, error: apsw.Error) -> HistoryError:
    free = _free_bytes(path)
    if free < 1024 * 1024:
        message = f"the disk that holds {path} is full"
        return HistoryError(message, "free disk space; runs continue meanwhile", more="disk-full")
    return HistoryError(f"the run history {path} cannot be used: {error}", more="history-damaged")


def _free_bytes(path: Path) -> int:
    if not hasattr(os, "statvfs"):
        return 1 << 60
    status = os.statvfs(path.parent)
    return status.f_bavail * status.f_frsize


def _is_sound(connection: apsw.Connection, path: Path) -> bool:
    if not has_expected_schema(connection):
        return False
    return path.stat().st_size >= _MAX_FULL_CHECK or _query_value(connection, "PRAGMA integrity_check(1)") == "ok"


def _is_damage(path: Path, error: apsw.Error) -> bool:
    """Return whether an error that looks like a disk problem was caused by the contents of the file."""
    if isinstance(error, apsw.FullError):
        return _free_bytes(path) > _MIN_FREE
    if isinstance(error, apsw.ReadOnlyError):
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return getattr(error, "extendedresult", 0) in (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)


def generation(connection: apsw.Connection) -> int:
    """Return the number of writes to the index."""
    value = _query_value(connection, "SELECT generation FROM account")
    return value if isinstance(value, int) else -1


def _increment_generation(connection: apsw.Connection) -> int:
    connection.execute("UPDATE account SET generation = generation + 1")
    return generation(connection)


def transact(
    connection: apsw.Connection, body: Callable[[apsw.Connection], Result], begin: str = "BEGIN IMMEDIATE"
) -> Result:
    # Use IMMEDIATE: SQLite refuses to upgrade a read transaction after another process has written.
    try:
        connection.execute(begin)  # inside the try, because a signal may raise right after BEGIN
        result = body(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _set_journal_mode(connection: apsw.Connection, mode: str) -> None:
    """Set the journal mode, with retries.

    SQLite's busy timeout does not apply here. If several processes create the file, all but one get an error.
    """
    deadline = time.monotonic() + _WAIT_MS / 1000
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode = {mode}")
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _query_value(connection: apsw.Connection, query: str) -> Any:
    for row in connection.execute(query):
        return row[0]
    return None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _is_on_network(path: Path) -> bool:
    """Return whether the file is on a network file system. Only detected on Linux; False elsewhere."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return False
    folder = str(path.parent.resolve())
    mount_point = max(
        (mount for mount in mounts if folder == mount[1] or folder.startswith(mount[1].rstrip("/") + "/")),
        key=lambda mount: len(mount[1]),
        default=["", "", ""],
    )
    return mount_point[2] in _NETWORK_FILE_SYSTEMS
