"""Detect restarts, which end all processes of a run.

A restart is a reboot of the machine or, if the target is a rented container, a restart of that
container. A container restart keeps the boot ID of its host, and the kernel may even reuse the
number of the old process namespace.
"""

from __future__ import annotations

import os

from .shared import machine

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict

    Facts = Dict[str, Any]

SAME, REBOOTED, RESTARTED, ELSEWHERE = "same", "rebooted", "restarted", "elsewhere"


def origin() -> Facts:
    """Return the facts that a claim and a start decision record for a later call of ``change_since``."""
    host = os.uname().nodename if hasattr(os, "uname") else ""
    return dict(machine.identity(), init=machine.start_time(1), host=host)


def change_since(recorded: Facts) -> str:
    """Return what changed since ``recorded`` was written: SAME, REBOOTED, RESTARTED, or ELSEWHERE.

    The key ``start`` of ``recorded`` is the start time of the process that wrote it. A restart is certain
    only if the host name is the same and PID 1 is younger than that process, because several containers
    on a machine may share a home folder.
    """
    current = origin()
    if recorded.get("machine", current["machine"]) != current["machine"]:
        return ELSEWHERE
    if recorded.get("boot_id") != current["boot_id"]:
        return REBOOTED
    if "init" not in recorded or current["init"] is None:  # recorded by an older version, or PID 1 is hidden
        return SAME if recorded.get("processes", current["processes"]) == current["processes"] else ELSEWHERE
    if (recorded.get("processes"), recorded["init"]) == (current["processes"], current["init"]):
        return SAME
    start = recorded.get("start")
    younger = isinstance(start, int) and current["init"] > start
    return RESTARTED if younger and recorded.get("host") == current["host"] else ELSEWHERE
