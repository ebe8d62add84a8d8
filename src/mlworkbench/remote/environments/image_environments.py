"""Environments that were built in an image, which is identified by its ID because names can change.

If a name refers to another image, the environment is built again at the same path. Running
containers keep the old files through their mount: the old folder is renamed, and kept until no run
uses the environment.
"""

from __future__ import annotations

import os

from ..engine import Engine, is_missing_image
from ..shared.atomic_files import read_json
from ..shared.environment_layout import pack_path, prefix_of
from ..shared.layout import Root
from .environment_state import file_list_path, record_path
from .environment_usage import REPLACED_SUFFIX

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    Lock = Dict[str, Any]


def image_id(container: "Dict[str, Any]") -> "Optional[str]":
    """Return the ID of the image that the name refers to; None if the image is not present.

    The ID is a digest of the content. Raises OSError if the engine does not respond.
    """
    code, stdout, stderr = Engine(container).call("image", "inspect", "--format", "{{.Id}}", container["image"])
    if code and not is_missing_image(stderr):
        raise OSError("the container engine does not respond: %s" % stderr.strip()[-200:])
    return stdout.strip() or None if code == 0 else None


def is_for_image(root: Root, lock: Lock, container: "Optional[Dict[str, Any]]") -> bool:
    """Return whether an existing environment was built in the container's image or needs no image."""
    if not lock.get("built_in") or not container:
        return True
    built_image = (read_json(record_path(prefix_of(root, lock)), "digest") or {}).get("image_id")
    try:
        return bool(built_image) and built_image == image_id(container)
    except OSError:
        return True  # the container's start waits for the engine, or reports that it is missing


def set_aside(prefix: str) -> None:
    """Rename the old environment. The record is removed first, so that no new run uses the environment."""
    for path in (record_path(prefix), file_list_path(prefix), pack_path(prefix)):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
    os.rename(prefix, "%s%s%s" % (prefix, REPLACED_SUFFIX, os.urandom(8).hex()))
