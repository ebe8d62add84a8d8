"""One output of a run, opened so that no link leads elsewhere."""

from __future__ import annotations

import errno
import os
import stat

from ..errors import HistoryError, UnknownName
from ..paths import RunFolder
from ..remote.shared.tree import READ, Folders

_SHOWN = 20


def open_output(run: RunFolder, artifact: str) -> int:
    """The file of this path below ``outputs/``. Names are opened one by one, so that no link leads elsewhere."""
    names = [name for name in artifact.replace(os.sep, "/").split("/") if name not in ("", ".")]
    if not names or ".." in names or "\0" in artifact:
        raise UnknownName("artifact", artifact, some_artifacts(run))
    try:
        with Folders(run.outputs) as folders:
            flags = READ | getattr(os, "O_NONBLOCK", 0)  # a pipe that nobody writes to would hold us for ever
            handle = os.open(names[-1], flags, dir_fd=folders.open("/".join(names[:-1])))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ENAMETOOLONG):
            raise UnknownName("artifact", artifact, some_artifacts(run)) from None
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise HistoryError(f"{artifact} is a link, and links are not followed") from None
        raise HistoryError(f"cannot read {artifact}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnknownName("artifact", artifact, some_artifacts(run), "it is not a regular file")
    return handle


def as_typed(artifact: str) -> str:
    """People may write ``outputs/x`` or ``x``; lists of outputs always mean the latter."""
    names = [name for name in artifact.replace(os.sep, "/").split("/") if name not in ("", ".")]
    return "/".join(names[1:]) if names[:1] == ["outputs"] and len(names) > 1 else artifact


def read_at(handle: int, size: int, offset: int) -> bytes:
    """As ``os.pread``, which Windows lacks: its own place in the file stays where it was."""
    if hasattr(os, "pread"):
        return os.pread(handle, size, offset)
    before = os.lseek(handle, 0, os.SEEK_CUR)
    try:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, size)
    finally:
        os.lseek(handle, before, os.SEEK_SET)


def some_artifacts(run: RunFolder) -> list[str]:
    """Some that there are, for whoever has mistyped one."""
    found = ["driver_log"]
    for folder, _, names in os.walk(run.outputs):
        place = os.path.relpath(folder, run.outputs)
        found += [os.path.normpath(os.path.join("outputs", place, name)) for name in sorted(names)]
        if len(found) > _SHOWN:
            return [*found[:_SHOWN], "…"]
    return found
