"""Whether the processes of a run can still be there: not after a reboot, nor after a restart of the container that a
rented target is. Such a restart keeps the boot of its host; the kernel may even give the number of the old process
namespace to the new one."""

from __future__ import annotations

import os

from .shared import machine

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict

    Facts = Dict[str, Any]

SAME, REBOOTED, RESTARTED, ELSEWHERE = "same", "rebooted", "restarted", "elsewhere"


def origin() -> Facts:
    """What a claim and a start decision record, so that ``change_since`` can tell later."""
    host = os.uname().nodename if hasattr(os, "uname") else ""
    return dict(machine.identity(), init=machine.start_time(1), host=host)


def change_since(then: Facts) -> str:
    """What became of the processes that were there when ``then`` was recorded, with ``start`` of its process.

    A restart is certain only if it is the same host by name and its first process is younger than that one: several
    containers of one machine may share a home.
    """
    here = origin()
    if then.get("machine", here["machine"]) != here["machine"]:
        return ELSEWHERE
    if then.get("boot_id") != here["boot_id"]:
        return REBOOTED
    if "init" not in then or here["init"] is None:  # recorded by an older version, or /proc hides it
        return SAME if then.get("processes", here["processes"]) == here["processes"] else ELSEWHERE
    if (then.get("processes"), then["init"]) == (here["processes"], here["init"]):
        return SAME
    start = then.get("start")
    younger = isinstance(start, int) and here["init"] > start
    return RESTARTED if younger and then.get("host") == here["host"] else ELSEWHERE
