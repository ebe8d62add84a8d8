"""Limits for programs that unpack packages: an archive of a few kilobytes can unpack to terabytes.

uv and py-rattler have no such limits. Two limits apply: a write that would make a file too
large fails, so that the program can clean up. A program is killed if it writes too much in total,
or if the disk is nearly full.
"""

from __future__ import annotations

import os
import shutil

from .open_files import open_files

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Mapping, Optional, Set, Tuple

MAX_FILE_SIZE = 1 << 34  # bytes
MAX_BYTES = 1 << 34
_UNPACK_FACTOR = 20  # packages unpack to less than this multiple of their size
_RESERVE = 64 << 20  # bytes of free disk space to leave for other programs
TOO_LARGE = "a package unpacks to an implausible size; remove the package that was added last"
MAKE_ROOM = "free disk space, for example with 'mlw experiment clean'"
_TEMPORARY_PREFIX = ".tmp"  # prefix of uv's temporary folders in its cache


def max_bytes_for(packages: "Iterable[Dict[str, Any]]") -> int:
    """Return how many bytes an installation may write, based on the sizes of its packages."""
    sizes = [package.get("size") for package in packages]
    return MAX_BYTES + _UNPACK_FACTOR * sum(size for size in sizes if isinstance(size, int) and size > 0)


class UnpackingLimits:
    """Limits for one program, which writes to the disk that contains ``folder``."""

    def __init__(self, max_bytes: int, folder: str) -> None:
        self._max_bytes = max_bytes
        self._folder = folder
        self._reserve = min(_RESERVE, _free_bytes(folder) // 2)

    def apply(self, pid: int) -> None:
        """Limit the file size for a program that was just started and for its children. Linux only."""
        import resource  # noqa: PLC0415 - not on every system

        if not hasattr(resource, "prlimit"):
            return
        try:
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            limit = MAX_FILE_SIZE if hard == resource.RLIM_INFINITY else min(hard, MAX_FILE_SIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, limit))
        except (ProcessLookupError, PermissionError):
            pass  # the program has ended or cannot be limited: the other limits still apply

    def exceeded(self, pid: int) -> "Optional[Tuple[str, str]]":
        """Return why the program must be killed, and a hint; None if no limit is exceeded."""
        if bytes_written(pid) > self._max_bytes:
            return "the installation exceeded the limit of %d GB" % (self._max_bytes >> 30), TOO_LARGE
        if _free_bytes(self._folder) < self._reserve:
            return "the disk that holds %s became full" % self._folder, MAKE_ROOM
        return None


def is_file_size_error(output: str) -> bool:
    """Return whether a program reported that a file became too large."""
    return "(os error 27)" in output


def bytes_written(pid: int) -> int:
    """Return how many bytes a process has written, including to pipes."""
    try:
        with open("/proc/%d/io" % pid, encoding="ascii") as file:
            return int(dict(line.split(": ") for line in file)["wchar"])
    except (OSError, ValueError, KeyError):
        return 0  # the process has ended, or this is not Linux


def uv_cache(environ: "Mapping[str, str]", folder: str) -> str:
    """Return uv's cache folder, given these variables and the folder in which uv is started."""
    configured = environ.get("UV_CACHE_DIR")
    default = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    return os.path.realpath(os.path.join(folder, configured or os.path.join(default, "uv")))


def temporary_folders(pid: int, cache: str) -> "Set[str]":
    """Return the temporary folders in uv's cache that the program writes to.

    If uv is killed, it leaves them behind.
    """
    folders: Set[str] = set()
    for path in open_files(pid):
        if not path.startswith(cache + "/"):
            continue
        parts = path[len(cache) + 1 :].split("/")
        depth = next((index for index, part in enumerate(parts) if part.startswith(_TEMPORARY_PREFIX)), None)
        if depth is not None:
            folders.add(os.path.join(cache, *parts[: depth + 1]))
    return folders


def _free_bytes(folder: str) -> int:
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder or "/").free
