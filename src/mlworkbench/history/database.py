"""The SQLite file under the history: opening, waiting, noticing damage. Knows nothing of runs."""

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
from .checked import Checked, Look
from .mark import Mark
from .schema import VERSION, Step, create, is_ours, set_old_aside

Answer = TypeVar("Answer")

_WAIT_MS = 60_000
_CHECKED_BELOW = 8 * 1024 * 1024  # 10 ms; a larger file is checked where it is read, by the checksums of its rows
_NEVER = 1000  # no mlw will ever have so high a version of its index
_ROOM = 64 * 1024 * 1024
_CACHE = 64 * 1024 * 1024  # for making a file anew: keys come in no order
# What SQLite, or the decoding of what it hands over, says of pages that are not what was written.
DAMAGE = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    apsw.FormatError,
    UnicodeDecodeError,
)
# WAL needs memory shared between all writers, which a network file system does not give.
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "lustre", "beegfs", "gpfs", "afs", "ceph")


class Damaged(apsw.CorruptError):
    """What was read is not what was written."""


class Database:
    """One connection, opened when first needed. A damaged file is set aside and refilled by ``refill``."""

    def __init__(self, path: Path, refill: Step, migrate: Step) -> None:
        self._path = path
        self._refill = refill
        self._migrate = migrate
        self._mark = Mark(f"{path}.mark")
        self._checked = Checked(path)
        self._look: Look | None = None
        self._facts: tuple[Look, ...] = ()  # of the files, before what is being read was
        self._sound: tuple[object, ...] | None = None  # the state that this connection has looked at wholly
        self._connection: apsw.Connection | None = None
        self._file: tuple[int, int] | None = None

    def read(self, body: Callable[[apsw.Connection], Answer]) -> Answer:
        """Run ``body`` over one unchanging state. It may run twice."""

        def looked(connection: apsw.Connection) -> Answer:
            self._look = self._checked.look()  # before anything is read: what changes later is seen to be younger
            self._facts = self._checked.facts()
            return transact(connection, body, "BEGIN")

        return self._safely(looked)

    def check(self, connection: apsw.Connection, everything: Step) -> None:
        """Within ``read``: ``everything`` is looked at, unless it was and the file has not changed since."""
        look = self._look
        if _on_network(self._path):  # there times come late
            everything(connection)
            return
        # SQLite knows of every write, also of one too soon after another for the times of the files to tell.
        seen = (self._facts, _value(connection, "PRAGMA data_version"), connection.total_changes())
        if seen == self._sound:
            return
        if look is None or look[:2] != self._file:
            everything(connection)
        elif not self._checked.holds(look):
            everything(connection)
            self._checked.note(look)
        self._sound = seen

    def write(self, body: Callable[[apsw.Connection], Answer]) -> Answer:
        """Run ``body`` in a transaction that is on disk when this returns. ``body`` may run twice."""
        return self._safely(lambda connection: self._commit(connection, body))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._sound = None

    def _safely(self, body: Callable[[apsw.Connection], Answer]) -> Answer:
        for _ in range(5):
            try:
                connection = self._open()
                answer = body(connection)
            except DAMAGE:
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
                raise _unusable(self._path, error) from error
            if self._is_current():
                return answer
            self.close()  # another process has set the file aside: what we did went into the old one
        what = f"the run history {self._path} was damaged repeatedly"
        raise HistoryError(what, "check the disk", more="history-damaged")

    def _commit(self, connection: apsw.Connection, body: Callable[[apsw.Connection], Answer]) -> Answer:
        def counted(connection: apsw.Connection) -> tuple[Answer, int]:
            before = connection.total_changes()
            answer = body(connection)
            return answer, _count_up(connection) if connection.total_changes() != before else 0

        answer, generation = transact(connection, counted)
        if generation:
            self._mark.write(generation)  # after the commit is on disk: it must never be ahead of it
        return answer

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            if not _size(self._path):
                self._build()
            self._file = _identity(self._path)  # before anything is read: what is damaged is this one
            connection = apsw.Connection(str(self._path))
            try:
                self._prepare(connection)
            except apsw.SQLError as error:  # a format or tables that are not ours
                connection.close()
                raise Damaged(str(error)) from error
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: apsw.Connection) -> None:
        reached = self._mark.read()  # before the file: another process may write meanwhile
        connection.set_busy_timeout(_WAIT_MS)
        mode = "DELETE" if _on_network(self._path) else "WAL"
        if str(_value(connection, "PRAGMA journal_mode")).upper() != mode:
            _switch(connection, mode)
        connection.execute("PRAGMA synchronous = FULL")
        version = _value(connection, "PRAGMA user_version")
        if VERSION < version < _NEVER:
            raise HistoryError(
                f"{self._path} was written by a newer mlw (version {version}; this one supports {VERSION})",
                "upgrade mlworkbench, or set MLW_HOME to another folder",
                more="history-unusable",
            )
        if version in range(1, VERSION):
            transact(connection, self._upgrade)
        elif version != VERSION or not _is_sound(connection, self._path):
            raise Damaged("check of the whole file")
        if generation(connection) < reached:
            raise Damaged("writes are lost")  # a damaged WAL is cut off by SQLite without a word

    def _build(self) -> None:
        """Make the file from the folders under another name, then put it in its place: whole, or not at all.

        Nobody can use the history meanwhile, for nobody knows its keys and numbers. All wait, one builds.
        """
        new = f"{self._path}.new"
        with _alone(self._path):
            if _size(self._path):
                return  # another process was quicker
            _forget(new)
            try:
                self._fill(new)
                failpoint("filled")
                self._rename_aside()  # a WAL without its file, of which nothing must get into the new one
                _place(new, self._path)
            finally:
                _forget(new)

    def _fill(self, path: str) -> None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = apsw.Connection(path)
        try:
            # Of no use before it is whole, and then written to disk at once.
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
        if _value(connection, "PRAGMA user_version") == VERSION:
            return  # another process was quicker
        set_old_aside(connection)
        self._start(connection, self._migrate)

    def _start(self, connection: apsw.Connection, pour: Step) -> None:
        connection.execute("INSERT INTO account VALUES (1, 0, 0, 0, ?, 0)", (self._mark.read() + 1,))
        pour(connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")

    def _is_current(self) -> bool:
        return self._file == _identity(self._path)

    def _set_aside(self) -> None:
        """Keep the damaged file for whoever wants to look at it; the next open makes a new one."""
        self.close()
        with _alone(self._path):
            if self._is_current():  # else another process has done it
                self._rename_aside()

    def _rename_aside(self) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S") + f"-{os.getpid()}"
        for ending in ("-wal", "-shm", ""):  # the file itself last: until then nobody makes a new one
            with suppress(FileNotFoundError):
                os.rename(f"{self._path}{ending}", f"{self._path}.damaged-{stamp}{ending}")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time sets a damaged file aside, or makes a new one."""
    held = None
    while held is None:
        held = machine.lock(f"{path}.lock")
        if held is None:
            time.sleep(0.01)
    try:
        yield
    finally:
        os.close(held)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _forget(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _place(new: str, path: Path) -> None:
    """Under its own name, if nobody has put one there: a lock may mean nothing on a network file system."""
    try:
        os.link(new, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        os.rename(new, path)
    machine.sync_folder(str(path.parent))


def _unusable(path: Path, error: apsw.Error) -> HistoryError:
    free = _free(path)
    if free < 1024 * 1024:
        what = f"the disk that holds {path} is full"
        return HistoryError(what, "free disk space; runs continue meanwhile", more="disk-full")
    return HistoryError(f"the run history {path} cannot be used: {error}", more="history-damaged")


def _free(path: Path) -> int:
    if not hasattr(os, "statvfs"):
        return 1 << 60
    facts = os.statvfs(path.parent)
    return facts.f_bavail * facts.f_frsize


def _is_sound(connection: apsw.Connection, path: Path) -> bool:
    if not is_ours(connection):
        return False
    return path.stat().st_size >= _CHECKED_BELOW or _value(connection, "PRAGMA integrity_check(1)") == "ok"


def _is_damage(path: Path, error: apsw.Error) -> bool:
    """Whether the file's content is to blame for what looks like trouble with the disk."""
    if isinstance(error, apsw.FullError):
        return _free(path) > _ROOM
    if isinstance(error, apsw.ReadOnlyError):
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return getattr(error, "extendedresult", 0) in (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)


def generation(connection: apsw.Connection) -> int:
    """How often the index was written to."""
    found = _value(connection, "SELECT generation FROM account")
    return found if isinstance(found, int) else -1


def _count_up(connection: apsw.Connection) -> int:
    connection.execute("UPDATE account SET generation = generation + 1")
    return generation(connection)


def transact(
    connection: apsw.Connection, body: Callable[[apsw.Connection], Answer], begin: str = "BEGIN IMMEDIATE"
) -> Answer:
    # IMMEDIATE: a transaction that reads first and then writes is refused at once if another wrote meanwhile.
    connection.execute(begin)
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
