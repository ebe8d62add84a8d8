"""The children of a sweep as they travel: each as what differs from its parent's spec, all in one file.

A child's own folder is made when its turn comes: a thousand of them that wait cost one file.
"""

from __future__ import annotations

import json
import os

from .run_spec import read_spec
from .shared import machine
from .shared.layout import Root, RunFolder
from .shared.sweep_children import merged
from .shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from .run_spec import Spec

    Data = Dict[str, Any]  # a spec, or a part of one


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
