"""Bounds for programs that unpack packages: an archive of a few kilobytes can unpack to terabytes.

uv and py-rattler have no limit of their own. So no file that they write may become too large (they get an error and
tidy up), and they are ended when all that they wrote is too much, or when the disk is nearly full.
"""

from __future__ import annotations

import os
import shutil

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Mapping, Optional, Set, Tuple

LARGEST_FILE = 1 << 34  # bytes
MOST = 1 << 34
_FACTOR = 20  # packages unpack to less than that
_RESERVE = 64 << 20  # bytes of the disk that are left to everybody else
TOO_LARGE = "a package unpacks to an implausible size; remove the package that was added last"
MAKE_ROOM = "free disk space, for example with 'mlw experiment clean'"
_TEMPORARY = ".tmp"  # how uv's temporary folders in its cache begin


def most_for(packages: "Iterable[Dict[str, Any]]") -> int:
    """Bytes that an installation may write, by the sizes of its packages."""
    sizes = [one.get("size") for one in packages]
    return MOST + _FACTOR * sum(size for size in sizes if isinstance(size, int) and size > 0)


class Bounds:
    """Of one program. ``folder``: on the disk that it writes to."""

    def __init__(self, most: int, folder: str) -> None:
        self._most = most
        self._folder = folder
        self._reserve = min(_RESERVE, _free(folder) // 2)

    def apply(self, pid: int) -> None:
        """To a program that has just been started, and to all that it starts. Linux only."""
        import resource  # noqa: PLC0415 - not on every system

        if not hasattr(resource, "prlimit"):
            return
        try:
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            most = LARGEST_FILE if hard == resource.RLIM_INFINITY else min(hard, LARGEST_FILE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
        except (ProcessLookupError, PermissionError):
            pass  # it has ended, or may not be limited: the other bounds hold

    def exceeded(self, pid: int) -> "Optional[Tuple[str, str]]":
        """Why the program has to be ended, in a few words, and what to do about it."""
        if written(pid) > self._most:
            return "the installation exceeded the limit of %d GB" % (self._most >> 30), TOO_LARGE
        if _free(self._folder) < self._reserve:
            return "the disk that holds %s became full" % self._folder, MAKE_ROOM
        return None


def is_too_large(said: str) -> bool:
    """Whether a program complains that a file became too large."""
    return "(os error 27)" in said


def written(pid: int) -> int:
    """Bytes, also to pipes."""
    try:
        with open("/proc/%d/io" % pid, encoding="ascii") as file:
            return int(dict(line.split(": ") for line in file)["wchar"])
    except (OSError, ValueError, KeyError):
        return 0  # it has ended, or this is no Linux


def uv_cache(environ: "Mapping[str, str]", folder: str) -> str:
    """Where uv keeps its cache with these variables, when it is started in this folder."""
    own = environ.get("UV_CACHE_DIR")
    usual = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    return os.path.realpath(os.path.join(folder, own or os.path.join(usual, "uv")))


def temporary_folders(pid: int, cache: str) -> "Set[str]":
    """Temporary folders of uv's in its cache that the program writes to. It leaves them when it is killed."""
    found: Set[str] = set()
    try:
        names = os.listdir("/proc/%d/fd" % pid)
    except OSError:
        return found
    for name in names:
        try:
            path = os.readlink("/proc/%d/fd/%s" % (pid, name))
        except OSError:
            continue  # closed meanwhile
        if not path.startswith(cache + "/"):
            continue
        parts = path[len(cache) + 1 :].split("/")
        place = next((index for index, part in enumerate(parts) if part.startswith(_TEMPORARY)), None)
        if place is not None:
            found.add(os.path.join(cache, *parts[: place + 1]))
    return found


def _free(folder: str) -> int:
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder or "/").free
