"""The archive of an environment: its validity, and the paths that belong to an environment."""

from __future__ import annotations

import os

from ..shared.atomic_files import read_json, write_atomic
from ..shared.environment_layout import pack_of, pack_path, prefix_of
from ..shared.layout import Root
from .environment_state import record_path

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

    Lock = Dict[str, Any]

PACK_FORMAT = 1  # an archive with another format is created again


def is_packed(root: Root, lock: Lock) -> bool:
    """Return whether the archive exists unchanged and was created from the current environment."""
    record = read_json(record_path(prefix_of(root, lock)), "digest") or {}
    try:
        return bool(record.get("pack") == _pack_facts(root, lock))
    except OSError:
        return False


def record_pack(root: Root, lock: Lock) -> None:
    """Record the archive as complete. The caller must hold the builder's lock."""
    path = record_path(prefix_of(root, lock))
    record = read_json(path, "digest")
    if record:
        write_atomic(path, dict(record, pack=_pack_facts(root, lock)))


def _pack_facts(root: Root, lock: Lock) -> Dict[str, int]:
    status = os.stat(pack_of(root, lock))
    return {"way": PACK_FORMAT, "bytes": status.st_size, "changed": status.st_mtime_ns}


def environment_paths(prefix: str) -> Tuple[str, str]:
    """Return the paths of an environment: its folder, and its archive, which may not exist."""
    return prefix, pack_path(prefix)
