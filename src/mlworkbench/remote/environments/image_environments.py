"""Environments that were built in an image are for that very image: its ID decides, a name can get other content.

When a name means another image, the environment is built again at the same path. Containers that run keep the old
files: theirs is a mount of the folder, which gets another name and stays until no run uses the environment.
"""

from __future__ import annotations

import os

from ..engine import Engine, is_missing_image
from ..shared.environment_layout import packed, prefix_of
from ..shared.files import read_json
from ..shared.layout import Root
from .environment import files_of, note_of
from .stock import REPLACED

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    Lock = Dict[str, Any]


def image_id(container: "Dict[str, Any]") -> "Optional[str]":
    """The ID of the image that the name means now, which is a digest of its content; None: it is not here.

    Raises OSError if the engine does not answer.
    """
    code, out, err = Engine(container).call("image", "inspect", "--format", "{{.Id}}", container["image"])
    if code and not is_missing_image(err):
        raise OSError("the container engine does not respond: %s" % err.strip()[-200:])
    return out.strip() or None if code == 0 else None


def is_for_image(root: Root, lock: Lock, container: "Optional[Dict[str, Any]]") -> bool:
    """Whether an environment that is there was built in the image of the container, or in none."""
    if not lock.get("built_in") or not container:
        return True
    known = (read_json(note_of(prefix_of(root, lock)), "digest") or {}).get("image_id")
    try:
        return bool(known) and known == image_id(container)
    except OSError:
        return True  # the start of the container waits for the engine, or explains why there is none


def set_aside(prefix: str) -> None:
    """Make room for the next one. The note goes first: from then on the old one does not count."""
    for path in (note_of(prefix), files_of(prefix), packed(prefix)):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
    os.rename(prefix, "%s%s%s" % (prefix, REPLACED, os.urandom(8).hex()))
