"""Marker files that the launcher and the supervisor write for each other.

Readers return None if a marker is missing or invalid.
"""

from __future__ import annotations

import os

from .journal import write_with_reserve
from .preallocated_exit import fill_slot, read_slot
from .restart_detection import origin
from .shared import machine
from .shared.atomic_files import read_json, write_atomic
from .shared.layout import RunFolder

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    Marker = Optional[Dict[str, Any]]

_START_KEYS = ("pid", "start", "launcher", "time", "clock")
_EXIT_KEYS = ("code", "signal", "ended", "elapsed")


def read_start_decision(run: RunFolder) -> Marker:
    decision = read_json(run.start_decision, "decision", "pid", "start", "boot_id")
    if decision is None and os.path.exists(run.start_decision):
        # The marker is damaged, so the decision is unknown. The run may have started and must not start again.
        return dict(origin(), decision="start", pid=None, start=None)
    return decision


def read_started(run: RunFolder) -> Marker:
    return read_json(run.started, *_START_KEYS)


def read_starting(run: RunFolder) -> Marker:
    return read_json(run.starting, *_START_KEYS)


def read_exit(run: RunFolder) -> Marker:
    return read_json(run.exit, *_EXIT_KEYS) or _read_slot_exit(run)


def _read_slot_exit(run: RunFolder) -> Marker:
    record = read_slot(run)
    return record if record and all(key in record for key in _EXIT_KEYS) else None


def write_exit(run: RunFolder, ending: Dict[str, Any]) -> None:
    """Write the exit status to its file, or else to the preallocated slot. Raise OSError if both writes fail."""
    try:
        write_with_reserve(run, lambda: write_atomic(run.exit, ending))
    except OSError:
        try:
            fill_slot(run, ending)
        except OSError:
            pass  # report the first error
        else:
            return
        raise


def finalize_exit(run: RunFolder) -> None:
    """Move the exit status from the slot to its file at the end of a run, and remove the slot."""
    try:
        record = _read_slot_exit(run)
        if record and read_json(run.exit, *_EXIT_KEYS) is None:
            write_atomic(run.exit, record)
        os.unlink(run.slot)
    except OSError:
        pass  # the status stays in the slot and is read from there


def confirm_started(run: RunFolder) -> Marker:
    """Rename the marker ``starting`` to ``started`` if that has not been done yet, and return its content."""
    try:
        os.rename(run.starting, run.started)
    except OSError:
        pass  # already renamed, or the child never became the user's program
    return read_started(run)


def is_alive(process: Tuple[Optional[int], Optional[int]]) -> bool:
    """Return whether the recorded process, identified by PID and start time, is still alive."""
    pid, start = process
    return pid is not None and start is not None and machine.start_time(pid) == start
