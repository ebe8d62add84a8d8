"""Removal of a run folder together with its container."""

from __future__ import annotations

import errno
import os

from .shared.atomic_files import read_json
from .shared.folder_tree import remove
from .shared.layout import RunFolder


def remove_run(path: str) -> None:
    """Delete a run folder, after its container if one may exist. Raise OSError on failure."""
    run = RunFolder(path)
    container = (read_json(run.spec) or {}).get("container")
    if container and os.path.exists(run.container):
        from .container_watcher import remove_if_owned  # noqa: PLC0415
        from .engine import Engine  # noqa: PLC0415 - only for containers

        if not remove_if_owned(Engine(container), run):
            message = "the run's container %s still exists, and the engine does not respond" % container.get("name")
            raise OSError(errno.EBUSY, message)
    remove(path)
