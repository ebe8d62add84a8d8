"""The specs of a sweep's children, stored in one file as differences from the parent's spec.

A child's folder is created when the child starts, so a thousand waiting children need only one
file.
"""

from __future__ import annotations

import json
import os

from .run_spec import read_spec
from .shared import machine
from .shared.layout import Root, RunFolder
from .shared.sweep_children import merge_spec
from .shared.untrusted_json import parse_json

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from .run_spec import Spec

    Data = Dict[str, Any]  # a spec, or a part of one


def write_children(run: RunFolder, changes: List[Data]) -> None:
    """Write one line per child, beginning with the run ID. Do nothing if the file exists."""
    if os.path.exists(run.children):
        return
    temporary = "%s.%s.part" % (run.children, os.urandom(8).hex())
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        for change in changes:
            file.write("%s %s\n" % (change["id"]["="], json.dumps(change)))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, run.children)
    machine.sync_folder(run.path)


def read_child(root: Root, run: RunFolder, parent: Spec, name: str) -> Optional[Spec]:
    """Return the spec of a child, or None if it is not available."""
    spec = read_spec(root.run(name))
    if spec is not None:
        return spec
    prefix = name + " "
    data: Any = parent
    try:
        with open(run.children, encoding="ascii") as file:
            for line in file:
                if line.startswith(prefix):
                    child: Any = merge_spec(data, parse_json(line[len(prefix) :]))
                    return child  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None
