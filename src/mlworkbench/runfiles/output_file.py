"""Open a run output without following links."""

from __future__ import annotations

import errno
import os
import stat

from ..errors import HistoryError, UnknownName
from ..paths import RunFolder
from ..remote.shared.folder_tree import READ, FolderHandles

_MAX_SHOWN = 20


def open_output(run: RunFolder, artifact: str) -> int:
    """Open a file below ``outputs/``, component by component, without following links."""
    names = [name for name in artifact.replace(os.sep, "/").split("/") if name not in ("", ".")]
    if not names or ".." in names or "\0" in artifact:
        raise UnknownName("artifact", artifact, example_artifacts(run))
    try:
        with FolderHandles(run.outputs) as folders:
            flags = READ | getattr(os, "O_NONBLOCK", 0)  # opening a pipe without a writer must not block
            handle = os.open(names[-1], flags, dir_fd=folders.open("/".join(names[:-1])))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ENAMETOOLONG):
            raise UnknownName("artifact", artifact, example_artifacts(run)) from None
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise HistoryError(f"{artifact} is a link, and links are not followed") from None
        raise HistoryError(f"cannot read {artifact}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnknownName("artifact", artifact, example_artifacts(run), "it is not a regular file")
    return handle


def strip_outputs_prefix(artifact: str) -> str:
    """Return the name as in the list of outputs: ``x`` for both ``outputs/x`` and ``x``."""
    names = [name for name in artifact.replace(os.sep, "/").split("/") if name not in ("", ".")]
    return "/".join(names[1:]) if names[:1] == ["outputs"] and len(names) > 1 else artifact


def read_at(handle: int, size: int, offset: int) -> bytes:
    """Read like ``os.pread``, which is missing on Windows. The file position is unchanged."""
    if hasattr(os, "pread"):
        return os.pread(handle, size, offset)
    before = os.lseek(handle, 0, os.SEEK_CUR)
    try:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, size)
    finally:
        os.lseek(handle, before, os.SEEK_SET)


def example_artifacts(run: RunFolder) -> list[str]:
    """Return the names of some existing artifacts for an error message."""
    artifacts = ["driver_log"]
    for folder, _, names in os.walk(run.outputs):
        relative = os.path.relpath(folder, run.outputs)
        artifacts += [os.path.normpath(os.path.join("outputs", relative, name)) for name in sorted(names)]
        if len(artifacts) > _MAX_SHOWN:
            return [*artifacts[:_MAX_SHOWN], "…"]
    return artifacts
