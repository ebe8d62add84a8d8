"""The children of a sweep as they travel: each as what differs from its parent's spec, all in one file.

A child's own folder is made when its turn comes: a thousand of them that wait cost one file.
"""

from __future__ import annotations

import json
import os

from . import machine
from .folder import Root, RunFolder
from .run_spec import read_spec
from .untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from .run_spec import Spec

    Data = Dict[str, Any]  # a spec, or a part of one


def difference(parent: Data, child: Data) -> Data:
    """What of the child's spec is not its parent's; of mappings, the entries that differ."""
    found: Data = {}
    for name, value in child.items():
        mine = parent.get(name)
        if value == mine:
            continue
        if isinstance(value, dict) and isinstance(mine, dict) and not mine.keys() - value.keys():
            value = {"+": {key: one for key, one in value.items() if key not in mine or mine[key] != one}}
        else:
            value = {"=": value}
        found[name] = value
    return found


def merged(parent: Data, change: Data) -> Data:
    """The child's spec again."""
    child = dict(parent)
    for name, value in change.items():
        child[name] = value["="] if "=" in value else dict(parent[name], **value["+"])
    return child


def keep(run: RunFolder, changes: List[Data]) -> None:
    """Write the children down, once: one to a line, its id first."""
    if os.path.exists(run.children):
        return
    part = "%s.%s.part" % (run.children, os.urandom(8).hex())
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        for change in changes:
            file.write("%s %s\n" % (change["id"]["="], json.dumps(change)))
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, run.children)
    machine.sync_folder(run.path)


def read_child(root: Root, run: RunFolder, parent: Spec, name: str) -> Optional[Spec]:
    """The spec of a child; None if it is not to be had."""
    known = read_spec(root.run(name))
    if known is not None:
        return known
    begin = name + " "
    data: Any = parent
    try:
        with open(run.children, encoding="ascii") as file:
            for line in file:
                if line.startswith(begin):
                    child: Any = merged(data, parse_json(line[len(begin) :]))
                    return child  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None
