"""What launcher and supervisor leave on disk for each other. None if it is not there, or not what it should be."""

from __future__ import annotations

import os

from .exit_slot import fill_slot, read_slot
from .journal import spare_room
from .restart import origin
from .shared import machine
from .shared.files import read_json, write_whole
from .shared.layout import RunFolder

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    Note = Optional[Dict[str, Any]]

_START = ("pid", "start", "launcher", "time", "clock")
_EXIT = ("code", "signal", "ended", "elapsed")


def read_gate(run: RunFolder) -> Note:
    gate = read_json(run.gate, "decision", "pid", "start", "boot_id")
    if gate is None and os.path.exists(run.gate):
        # Damaged: somebody has decided, and who knows what. It may have started, so it never will again.
        return dict(origin(), decision="start", pid=None, start=None)
    return gate


def read_started(run: RunFolder) -> Note:
    return read_json(run.started, *_START)


def read_starting(run: RunFolder) -> Note:
    return read_json(run.starting, *_START)


def read_exit(run: RunFolder) -> Note:
    return read_json(run.exit, *_EXIT) or _in_slot(run)


def _in_slot(run: RunFolder) -> Note:
    record = read_slot(run)
    return record if record and all(key in record for key in _EXIT) else None


def write_exit(run: RunFolder, ending: Dict[str, Any]) -> None:
    """In a file of its own, else in the slot; raises OSError where the disk takes neither."""
    try:
        spare_room(run, lambda: write_whole(run.exit, ending))
    except OSError:
        try:
            fill_slot(run, ending)
        except OSError:
            pass  # why the file could not be written says more
        else:
            return
        raise


def settle_exit(run: RunFolder) -> None:
    """At the end of a run: what is in the slot gets its file, and the slot goes."""
    try:
        record = _in_slot(run)
        if record and read_json(run.exit, *_EXIT) is None:
            write_whole(run.exit, record)
        os.unlink(run.slot)
    except OSError:
        pass  # then it stays where it is, and is read from there


def promote(run: RunFolder) -> Note:
    """What a launcher that died between its word to the child and its note of the start would have done next."""
    try:
        os.rename(run.starting, run.started)
    except OSError:
        pass  # it had done so, or the child never became the user's program
    return read_started(run)


def alive(process: Tuple[Optional[int], Optional[int]]) -> bool:
    """Whether a process still is the one that was noted: pid and start time."""
    pid, start = process
    return pid is not None and start is not None and machine.start_time(pid) == start
