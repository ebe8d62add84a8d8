"""The run history, looked at without the repairs that other commands make: the index as it is."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import apsw

from ..history.database import DAMAGE, generation
from ..history.mark import Mark
from ..history.schema import VERSION, is_ours
from ..model import Status
from .facts import Past

_WHOLE = 64 * 1024 * 1024  # bytes; looking at all pages of more takes too long
_WAIT_MS = 300
_STRANDED = 600  # seconds after which a submit that has not been taken on is not going on any more


def look(path: Path, now: float) -> Past:
    """What is there. A file that SQLite cannot read is told as damage, not raised."""
    aside = tuple(sorted(str(one) for one in path.parent.glob(f"{path.name}.damaged-*") if one.suffix != ".part"))
    try:
        facts = path.stat()
    except FileNotFoundError:
        return Past(str(path), there=False, aside=aside)
    except OSError as error:
        return Past(str(path), problem=error.strerror or str(error), aside=aside)
    marks, found = _marks(path), _answer(path, facts.st_size, now)
    if (found.get("damage") or found.get("problem")) and _marks(path) != marks:
        marks, found = _marks(path), _answer(path, facts.st_size, now)  # somebody wrote while we looked
    written = max((when for when, _ in marks.values()), default=None)
    return Past(str(path), size=facts.st_size, known=VERSION, aside=aside, written=written, **found)  # type: ignore[arg-type]


def _marks(path: Path) -> dict[str, tuple[float, int]]:
    """What a write changes. A WAL may hold what the file does not have yet."""
    found = {}
    for ending in ("", "-wal"):
        with suppress(OSError):
            facts = os.stat(f"{path}{ending}")
            found[ending] = (facts.st_mtime, facts.st_size)
    return found


def _answer(path: Path, size: int, now: float) -> dict[str, object]:
    try:
        return _ask(path, size, now)
    except (*DAMAGE, apsw.SQLError) as error:
        return {"damage": str(error)}
    except apsw.Error as error:
        return {"problem": str(error)}


def _open(path: Path) -> apsw.Connection:
    """In the way that leaves no file behind: SQLite makes a WAL and its index for whoever looks, and we do not mend."""
    wal, index = (os.path.exists(f"{path}{ending}") for ending in ("-wal", "-shm"))
    if _keeps_wal(path) and not wal:  # nobody has it open, so nobody writes
        address = f"{path.absolute().as_uri()}?immutable=1"
        return apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(_WAIT_MS)
    # A last connection that closes would write to the file, and we only look.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    if wal and not index:  # its writer was killed; alone with the file, SQLite keeps the index in memory
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return connection


def _keeps_wal(path: Path) -> bool:
    """As its head says; on a network it does not."""
    try:
        with open(path, "rb") as file:
            return file.read(20)[18:] == b"\x02\x02"
    except OSError:
        return False


def _ask(path: Path, size: int, now: float) -> dict[str, object]:
    if not os.access(path, os.R_OK):
        return {"problem": "permission denied"}
    reached = Mark(f"{path}.mark").read()
    connection = _open(path)
    try:
        version = _value(connection, "PRAGMA user_version")
        if version != VERSION:
            ours = isinstance(version, int) and (version in range(1, VERSION) or version > VERSION)
            return {"version": version} if ours else {"damage": "it is not an index of mlw"}
        found = {"version": version, "whole": size <= _WHOLE, **_count(connection, now)}
        damage = _damage(connection, size, reached)
        return {**found, "damage": damage, "busy": _is_busy(connection)}
    finally:
        connection.close()


def _count(connection: apsw.Connection, now: float) -> dict[str, object]:
    stranded = "SELECT count(*) FROM runs WHERE final = 0 AND status = ? AND created < ?"
    before = int((now - _STRANDED) * 1_000_000)
    (number,) = next(iter(connection.execute(stranded, (Status.SUBMITTING.value, before))))
    return {
        "runs": _value(connection, "SELECT runs FROM account"),
        "unfinished": _value(connection, "SELECT unfinished FROM account"),
        "stranded": number,
    }


def _damage(connection: apsw.Connection, size: int, reached: int) -> str | None:
    if not is_ours(connection):
        return "tables are missing"
    if generation(connection) < reached:
        return "the last writes are lost"
    said = _value(connection, "PRAGMA quick_check(1)") if size <= _WHOLE else "ok"
    return None if said == "ok" else str(said)


def _is_busy(connection: apsw.Connection) -> bool:
    """Whether somebody writes now, and for longer than a moment."""
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
