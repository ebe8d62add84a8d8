"""Limits of a run's metrics files: which of them are read, and how much. A script can put anything into their folder.

Target and client apply the same limits, so that whatever the target offers is taken in by the client.
"""

from __future__ import annotations

import os
import stat

from .left_out import LeftOut
from .tree import FOLDER, NOFOLLOW

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Iterator, List, Mapping, Optional

PREFIX = "metrics/"
LONGEST_LINE = 4 * 1024 * 1024  # bytes; the in-run library writes longer values in several lines
LONGEST_SKIPPED = 16 * LONGEST_LINE  # bytes without a line end, after which a file is not read any further
MOST_FILES = 10000
MOST_BYTES = 2 * 1024 * 1024 * 1024  # of all metrics files of a run; about 25 million points
_COUNTED = 100  # times MOST_FILES: more entries are not even counted
_FIRST = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_LETTERS = _FIRST.union(".")
_LONGEST_NAME = 121


def is_name(name: str) -> bool:
    """Whether a file of this name in the metrics folder is read."""
    return 0 < len(name) <= _LONGEST_NAME and name[0] in _FIRST and _LETTERS.issuperset(name)


def bytes_left(offsets: Mapping[str, int]) -> int:
    """How much more of the metrics files is read, when they were read up to these offsets."""
    return MOST_BYTES - sum(offset for name, offset in offsets.items() if name.startswith(PREFIX))


def files_left(offsets: Mapping[str, int]) -> int:
    """How many more metrics files are read."""
    return MOST_FILES - sum(name.startswith(PREFIX) for name in offsets)


def entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder, unless it is a link to one."""
    if os.name == "nt":  # cannot list by handle
        with os.scandir(folder) as found:
            yield from found
        return
    handle = os.open(folder, FOLDER | NOFOLLOW)
    try:
        with os.scandir(handle) as found:
            yield from found
    finally:
        os.close(handle)


def left_out(folder: str) -> List[str]:
    """What is in the metrics folder and exceeds the limits, or is no metrics file."""
    left = LeftOut()
    files = size = 0
    try:
        for entry in entries(folder):
            facts = _facts(entry)
            if facts is None or not stat.S_ISREG(facts.st_mode):
                left.add(PREFIX + entry.name, "not a file")
            elif not is_name(entry.name):
                left.add(PREFIX + entry.name, "not a metrics file name")
            else:
                files, size = files + 1, size + facts.st_size
            if files >= MOST_FILES * _COUNTED:
                break
    except FileNotFoundError:
        pass  # nothing was ever logged
    except OSError as error:
        left.add("metrics", "cannot be listed (%s)" % error.strerror)
    lines = sorted(left.lines())
    if files > MOST_FILES or size > MOST_BYTES:
        found = "{:,} files with {:,} bytes".format(files, size)
        lines.append("metrics: {}; at most {:,} files and {:,} bytes are read".format(found, MOST_FILES, MOST_BYTES))
    return lines


def _facts(entry: os.DirEntry[str]) -> Optional[os.stat_result]:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None  # it has just gone
