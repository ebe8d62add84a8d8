"""The end of a run folder: nothing that only it knows of is left behind."""

from __future__ import annotations

import errno
import os

from .shared.files import read_json
from .shared.layout import RunFolder
from .shared.tree import remove


def remove_run(path: str) -> None:
    """Delete the folder of a run, and its container first if there may still be one; raises OSError."""
    run = RunFolder(path)
    container = (read_json(run.spec) or {}).get("container")
    if container and os.path.exists(run.container):
        from .engine import Engine  # noqa: PLC0415 - other runs have none
        from .watcher import remove_if_ours  # noqa: PLC0415

        if not remove_if_ours(Engine(container), run):
            words = "the run's container %s still exists, and the engine does not respond" % container.get("name")
            raise OSError(errno.EBUSY, words)
    remove(path)
