"""The jobs of this user in Slurm's queue: one ``squeue`` for all runs, shared by all connections through a cache.

The cache also remembers the last answer for the time when Slurm does not respond.
"""

from __future__ import annotations

import os
import time

from ..shared import machine
from ..shared.atomic_files import read_json, write_unsynced
from .job_record import checked_job
from .job_states import parse_state
from .slurm_programs import SlurmError, call

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from ..shared.layout import Root

    Row = Dict[str, str]

# Fields that exist since Slurm 20.02. The last two may contain any character.
_FIELDS = ("job", "state", "reason", "start", "end", "nodes", "label")
_FORMAT = "%A|%T|%r|%S|%e|%N|%j|%k"
MAX_AGE = 1.0  # seconds for which an answer is used again
_MAX_TIME = 1e11
_MAX_PAUSE = 30.0  # seconds between calls while Slurm does not respond
_TIMEOUT = 10.0  # seconds; without an answer, squeue would try for 20
_LOCK_WAIT = 12.0


class Queue:
    """An answer of ``squeue``: rows by job ID. ``error``: why the latest call failed; then the rows are older."""

    def __init__(self, rows: Dict[str, Row], asked_at: float, error: Optional[str]) -> None:
        self.rows = rows
        self.asked_at = asked_at
        self.error = error

    def find(self, name: str, comment: str) -> Optional[Row]:
        """Return the job with this name and comment; the oldest if there are several, because it may run."""
        rows = [row for row in self.rows.values() if row["label"] == "%s|%s" % (name, comment)]
        return min(rows, key=lambda row: int(row["job"])) if rows else None


def parse_queue(output: str) -> Dict[str, Row]:
    """Return the rows of all jobs of the user, whose comments others may have changed. Skip lines that are not rows."""
    rows = {}
    for line in output.splitlines():
        fields = line.split("|", len(_FIELDS) - 1)
        if len(fields) != len(_FIELDS):
            continue
        row = dict(zip(_FIELDS, fields))
        if checked_job(row["job"]) and parse_state(row["state"]):
            rows[row["job"]] = row
    return rows


def read_queue(root: Root, newer_than: float = 0.0) -> Queue:
    """Return the queue as it was after ``newer_than``, or with an error. A recent answer is used again."""
    os.makedirs(root.caches, 0o700, exist_ok=True)
    path = _cache_path(root)
    deadline = time.monotonic() + _LOCK_WAIT
    while True:
        cache = read_cache(path)
        queue = _usable(cache, newer_than)
        if queue is not None:
            return queue
        lock = machine.lock(path + ".lock")  # the others wait for the answer to this call
        if lock is not None or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    try:
        return _ask(path, read_cache(path))
    finally:
        if lock is not None:
            os.close(lock)


def read_cache(path: str) -> Dict[str, Any]:
    """Return the cached answer. A script may have damaged the file: then there is no answer yet."""
    cache = read_json(path, "rows", "asked_at") or {}
    numbers = {name: cache.get(name) or 0.0 for name in ("asked_at", "next", "pause", "changed")}
    rows = cache.get("rows")
    if not isinstance(rows, dict) or not all(_is_row(row) for row in rows.values()):
        rows, numbers = {}, dict.fromkeys(numbers, 0.0)
    if not all(isinstance(number, (int, float)) and abs(number) < _MAX_TIME for number in numbers.values()):
        rows, numbers = {}, dict.fromkeys(numbers, 0.0)
    return dict(numbers, rows=rows, error=str(cache["error"])[:500] if cache.get("error") else None)


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or not all(isinstance(row.get(field), str) for field in _FIELDS):
        return False
    return checked_job(row["job"]) is not None and parse_state(row["state"]) is not None


def _usable(cache: Dict[str, Any], newer_than: float) -> Optional[Queue]:
    now = time.time()
    asked_at = float(cache["asked_at"])
    if now < cache["next"] <= now + _MAX_PAUSE:  # Slurm did not respond a moment ago
        return Queue(cache["rows"], asked_at, str(cache.get("error")))
    newer_than = max(newer_than, cache["changed"])
    if asked_at > newer_than and 0 <= now - asked_at < MAX_AGE and not cache.get("error"):
        return Queue(cache["rows"], asked_at, None)
    return None


def _ask(path: str, cache: Dict[str, Any]) -> Queue:
    asked_at = time.time()
    try:
        output = call(
            "squeue", ["-h", "-a", "-r", "-t", "all", "-u", "%d" % os.getuid(), "-o", _FORMAT], timeout=_TIMEOUT
        )
    except SlurmError as error:
        pause = min(_MAX_PAUSE, max(1.0, 2 * float(cache["pause"])))
        kept: Dict[str, Any] = {"rows": cache["rows"], "asked_at": cache["asked_at"]}
        message = str(error.failure["message"])
        _store(path, dict(kept, error=message, pause=pause, next=time.time() + pause))
        return Queue(kept["rows"], float(kept["asked_at"]), message)
    rows = parse_queue(output)
    _store(path, {"rows": rows, "asked_at": asked_at})
    return Queue(rows, asked_at, None)


def forget_queue(root: Root) -> None:
    """Make the next query ask Slurm, after a change of the queue. The last answer is kept in case of silence."""
    path = _cache_path(root)
    cache = read_cache(path)
    if cache["asked_at"] and not cache.get("error"):
        _store(path, dict(cache, changed=time.time()))


def _cache_path(root: Root) -> str:
    return os.path.join(root.caches, "slurm-queue.json")


def _store(path: str, data: Dict[str, Any]) -> None:
    try:
        write_unsynced(path, data)
    except OSError:
        return  # disk full: the next call asks Slurm again
