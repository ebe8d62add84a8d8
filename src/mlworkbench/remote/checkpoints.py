"""The folder ``checkpoints`` of a run, which all attempts share and another run can start with."""

from __future__ import annotations

import os

from .shared.atomic_files import write_atomic
from .shared.failpoint import failpoint
from .shared.failure import Failed
from .shared.layout import Root, RunFolder, check_run_id
from .snapshot_check import check_digest

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from .run_spec import Spec


class NoCheckpoints(Failed):
    """Error for checkpoints of another run that cannot be copied."""

    code = explain = "no-checkpoints"


def prepare_checkpoints(
    root: Root, run: RunFolder, spec: Spec, beat: Callable[[], None], is_canceled: Callable[[], bool]
) -> None:
    """Create the folder, and copy the checkpoints of the run that this run resumes. Raise NoCheckpoints.

    Copying may take minutes, so ``beat`` and ``is_canceled`` are called for each file.
    """
    resumed, digest = spec.get("resumed"), spec.get("checkpoints")

    def proceed() -> None:
        beat()
        if is_canceled():
            raise NoCheckpoints("canceled while the checkpoints of run %s were copied" % resumed)

    if resumed and digest:
        _place_uploaded(root, run, resumed, digest, proceed)
        return
    if not resumed:
        os.makedirs(run.checkpoints, mode=0o700, exist_ok=True)
        return
    source = root.run(check_run_id(resumed)).checkpoints
    if os.path.islink(source) or not os.path.isdir(source):
        raise NoCheckpoints("run %s has no checkpoints on this machine" % resumed)
    import shutil  # noqa: PLC0415 - only for resumed runs

    def copy(source: str, target: str) -> str:
        proceed()
        return shutil.copy2(source, target, follow_symlinks=False)

    try:
        shutil.copytree(source, run.checkpoints, symlinks=True, copy_function=copy)
    except (OSError, shutil.Error) as error:
        raise NoCheckpoints("cannot copy the checkpoints of run %s: %s" % (resumed, error)) from None
    failpoint("checkpoints-copied")


def _place_uploaded(root: Root, run: RunFolder, resumed: str, digest: str, proceed: Callable[[], None]) -> None:
    """Create the folder from checkpoints that the client has sent from another machine."""
    from .working_copy import place_snapshot  # noqa: PLC0415 - only for resumed runs

    try:
        place_snapshot(root, check_digest(digest), run.checkpoints, proceed)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoCheckpoints("cannot copy the checkpoints of run %s: %s" % (resumed, error)) from None
    failpoint("checkpoints-copied")


def list_checkpoints(run: RunFolder) -> Dict[str, Any]:
    """Write the list of checkpoints with their digests, which a client reads next."""
    from .output_scan import iterate_outputs  # noqa: PLC0415 - only for downloads

    entries = [
        dict(entry, modified=_modification_time(os.path.join(run.checkpoints, entry["path"])))
        for entry in iterate_outputs(run.checkpoints, lambda: False)
    ]
    write_atomic(run.checkpoint_list, {"outputs": entries})
    return {"ok": True, "files": len(entries)}


def _modification_time(path: str) -> Optional[int]:
    try:
        return os.lstat(path).st_mtime_ns
    except (OSError, ValueError):
        return None  # removed meanwhile


def checkpoint_size(run: RunFolder) -> int:
    """Return the total size of the checkpoints in bytes."""
    size = 0
    for folder, _, names in os.walk(run.checkpoints):
        for name in names:
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue  # removed meanwhile
    return size


def remove_empty_checkpoints(run: RunFolder) -> None:
    try:
        os.rmdir(run.checkpoints)
    except OSError:
        pass  # it contains checkpoints, or is already gone
