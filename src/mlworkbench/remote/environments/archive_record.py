"""Whether the one file that an environment was packed into is there, and all that belongs to an environment."""

from __future__ import annotations

import os

from ..shared.environment_layout import pack_of, packed, prefix_of
from ..shared.files import read_json, write_whole
from ..shared.layout import Root
from .environment import note_of

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

    Lock = Dict[str, Any]

WAY = 1  # of packing: a file that was made in another way is made anew


def is_packed(root: Root, lock: Lock) -> bool:
    """Whether its one file is there as it was made, from the environment that is there now."""
    note = read_json(note_of(prefix_of(root, lock)), "digest") or {}
    try:
        return bool(note.get("pack") == _pack_facts(root, lock))
    except OSError:
        return False


def note_pack(root: Root, lock: Lock) -> None:
    """From here on it counts. For who holds the lock of who builds."""
    path = note_of(prefix_of(root, lock))
    note = read_json(path, "digest")
    if note:
        write_whole(path, dict(note, pack=_pack_facts(root, lock)))


def _pack_facts(root: Root, lock: Lock) -> Dict[str, int]:
    facts = os.stat(pack_of(root, lock))
    return {"way": WAY, "bytes": facts.st_size, "changed": facts.st_mtime_ns}


def parts_of(prefix: str) -> Tuple[str, str]:
    """What takes room: the folder, and the file if there is one."""
    return prefix, packed(prefix)
