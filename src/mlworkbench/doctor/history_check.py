"""Check the run history without making the repairs that other commands make."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import apsw

from ..history.database import DAMAGE_ERRORS, generation
from ..history.index_schema import VERSION, has_expected_schema
from ..history.lost_write_detection import WriteCounter
from ..model import Status
from .laptop_facts import HistoryState

_FULL_CHECK_SIZE = 64 * 1024 * 1024  # maximum size in bytes for a check of all pages
_WAIT_MS = 300
_INTERRUPTED_AFTER = 600  # seconds after which a submission without a supervisor counts as interrupted


def check_history(path: Path, now: float) -> HistoryState:
    """Return the state of the history. A file that SQLite cannot read is reported as damaged."""
    aside = tuple(sorted(str(file) for file in path.parent.glob(f"{path.name}.damaged-*") if file.suffix != ".part"))
    try:
        facts = path.stat()
    except FileNotFoundError:
        return HistoryState(str(path), exists=False, set_aside=aside)
    except OSError as error:
        return HistoryState(str(path), problem=error.strerror or str(error), set_aside=aside)
    stamps, state = _file_stamps(path), _try_read_state(path, facts.st_size, now)
    if (state.get("damage") or state.get("problem")) and _file_stamps(path) != stamps:
        stamps, state = _file_stamps(path), _try_read_state(path, facts.st_size, now)  # another program was writing
    written = max((when for when, _ in stamps.values()), default=None)
    return HistoryState(
        str(path),
        size=facts.st_size,
        supported_version=VERSION,
        set_aside=aside,
        written=written,
        **state,  # type: ignore[arg-type]
    )


def _file_stamps(path: Path) -> dict[str, tuple[float, int]]:
    """Return modification time and size of the database and its WAL file, by suffix. A write changes at least one."""
    stamps = {}
    for suffix in ("", "-wal"):
        with suppress(OSError):
            facts = os.stat(f"{path}{suffix}")
            stamps[suffix] = (facts.st_mtime, facts.st_size)
    return stamps


def _try_read_state(path: Path, size: int, now: float) -> dict[str, object]:
    try:
        return _read_state(path, size, now)
    except (*DAMAGE_ERRORS, apsw.SQLError) as error:
        return {"damage": str(error)}
    except apsw.Error as error:
        return {"problem": str(error)}


def _open(path: Path) -> apsw.Connection:
    """Open the file without creating files. For readers, SQLite would create a WAL and its index."""
    wal, index = (os.path.exists(f"{path}{suffix}") for suffix in ("-wal", "-shm"))
    if _keeps_wal(path) and not wal:  # no other process has the file open
        address = f"{path.absolute().as_uri()}?immutable=1"
        return apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(_WAIT_MS)
    # Closing the last connection would write to the file, but this is only a check.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    if wal and not index:  # the writer was killed; with exclusive access, SQLite keeps the index in memory
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return connection


def _keeps_wal(path: Path) -> bool:
    """Return whether the file header specifies a WAL, which mlw does not use on network file systems."""
    try:
        with open(path, "rb") as file:
            return file.read(20)[18:] == b"\x02\x02"
    except OSError:
        return False


def _read_state(path: Path, size: int, now: float) -> dict[str, object]:
    if not os.access(path, os.R_OK):
        return {"problem": "permission denied"}
    reached = WriteCounter(f"{path}.mark").read()
    connection = _open(path)
    try:
        version = _value(connection, "PRAGMA user_version")
        if version != VERSION:
            ours = isinstance(version, int) and (version in range(1, VERSION) or version > VERSION)
            return {"version": version} if ours else {"damage": "it is not an index of mlw"}
        state = {"version": version, "is_fully_checked": size <= _FULL_CHECK_SIZE, **_count(connection, now)}
        damage = _damage(connection, size, reached)
        return {**state, "damage": damage, "busy": _is_busy(connection)}
    finally:
        connection.close()


def _count(connection: apsw.Connection, now: float) -> dict[str, object]:
    query = "SELECT count(*) FROM runs WHERE final = 0 AND status = ? AND created < ?"
    before = int((now - _INTERRUPTED_AFTER) * 1_000_000)
    (interrupted,) = next(iter(connection.execute(query, (Status.SUBMITTING.value, before))))
    return {
        "runs": _value(connection, "SELECT runs FROM account"),
        "unfinished": _value(connection, "SELECT unfinished FROM account"),
        "interrupted": interrupted,
    }


def _damage(connection: apsw.Connection, size: int, reached: int) -> str | None:
    if not has_expected_schema(connection):
        return "tables are missing"
    if generation(connection) < reached:
        return "the last writes are lost"
    result = _value(connection, "PRAGMA quick_check(1)") if size <= _FULL_CHECK_SIZE else "ok"
    return None if result == "ok" else str(result)


def _is_busy(connection: apsw.Connection) -> bool:
    """Return whether another program locks the database for longer than a normal write."""
    began = time.monotonic()
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return time.monotonic() - began >= _WAIT_MS / 2000
    except apsw.ReadOnlyError:
        return False
    with suppress(apsw.Error):
        connection.execute("ROLLBACK")
    return False


def _value(connection: apsw.Connection, query: str) -> object:
    for row in connection.execute(query):
        return row[0]
    return None
