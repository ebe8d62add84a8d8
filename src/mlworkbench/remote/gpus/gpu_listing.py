"""The GPUs of this machine with whoever uses them: runs by their names, strangers by their users."""

from __future__ import annotations

import os

from ..notes import alive, read_started
from ..shared.files import read_json
from ..shared.layout import Root
from ..spark.note import application_of
from . import apart
from .inventory import pci_cards
from .presence import may_have_gpu
from .whose import Owner, Processes, explain, user_name

TYPE_CHECKING = False  # as in typing, whose import an agent would wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set


def gather(root: Root, patience: float = apart.PATIENCE) -> "Dict[str, Any]":
    """As ``inventory.look``; to each process its run, user and name, to each GPU who holds it (``held``)."""
    if not may_have_gpu():
        return apart.nothing("an NVIDIA card is installed, but there is no driver for it" if pci_cards() else None)
    found = apart.look(patience)
    pids = {one["pid"] for gpu in found["gpus"] for one in gpu["processes"] or ()}
    owners = _owners(root, pids)
    holders = _holders()
    for gpu in found["gpus"]:
        explain(gpu["processes"], owners)
        gpu["held"] = holders.get(gpu["uuid"])
    return found


def _holders() -> "Dict[str, Dict[str, Any]]":
    try:
        from .sockets import holders  # noqa: PLC0415 - sockets are not on every system
    except ImportError:
        return {}
    return {
        uuid: {
            "user": None if one.uid is None else user_name(one.uid),
            "run": one.run,
            "pid": one.pid() if one.run is None else None,
        }
        for uuid, one in holders().items()
    }


def _owners(root: Root, pids: "Set[int]") -> List[Owner]:
    """Runs that one of the processes may belong to. Most say it themselves; else all that are going on are meant."""
    table = Processes()
    names: Set[str] = set()
    silent = False
    for pid in pids:
        marks = [table.marks(one).get("MLW_RUN_ID") for one in table.ancestors(pid)]
        told = {name for name in marks if name and "/" not in name and name[0] != "."}
        names |= told
        silent = silent or not told
    if silent:
        names |= set(_going_on(root))
    return [_owner(root, name) for name in sorted(names) if os.path.isdir(root.run(name).path)]


def _going_on(root: Root) -> List[str]:
    try:
        names = os.listdir(root.runs)
    except OSError:
        return []
    return [
        name for name in names if os.path.exists(root.run(name).started) and not os.path.exists(root.run(name).exit)
    ]


def _owner(root: Root, name: str) -> Owner:
    run = root.run(name)
    facts = read_started(run) or {}
    child = (facts.get("pid"), facts.get("start"))
    init = _init(run.container, run.spec)
    return Owner(name, run.path, [child[0]] if alive(child) else [], init, lambda: application_of(run))


def _init(note: str, spec: str) -> "Any":
    """The first process of the run's container, if it has one: a question to the engine."""
    if not os.path.exists(note):
        return None
    container = (read_json(spec) or {}).get("container")
    if not container:
        return None
    from ..engine import Engine  # noqa: PLC0415 - rarely needed

    try:
        return Engine(container).inspect().get("pid") or None
    except (OSError, KeyError, TypeError, ValueError):
        return None
