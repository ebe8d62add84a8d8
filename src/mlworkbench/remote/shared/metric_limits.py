"""Limits for a run's metrics files: which files are read, and how much of them.

Scripts can write anything there. Target and client apply the same limits, so that the client
accepts everything that the target offers.
"""

from __future__ import annotations

import os
import stat

from .folder_tree import FOLDER, NOFOLLOW
from .layout import EXTERNAL_METRICS
from .unread_files import UnreadFiles

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Iterator, List, Mapping, Optional, Tuple

PREFIX = "metrics/"
MAX_LINE_LENGTH = 4 * 1024 * 1024  # bytes; the in-run library splits longer values into several lines
MAX_SKIPPED = 16 * MAX_LINE_LENGTH  # reading of a file stops after this many bytes without a line break
MAX_FILES = 10000
MAX_BYTES = 2 * 1024 * 1024 * 1024  # maximum for all metrics files of a run; about 25 million points
_COUNT_FACTOR = 100  # entries beyond this multiple of MAX_FILES are not counted
_FIRST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_CHARACTERS = _FIRST_CHARACTERS.union(".")
_MAX_NAME = 121
RANK_SOURCE, _RANK_SUFFIX = "rank ", ".rank"


def is_metric_file(name: str) -> bool:
    """Return whether a file with this name in the metrics folder is read."""
    return 0 < len(name) <= _MAX_NAME and name[0] in _FIRST_CHARACTERS and _CHARACTERS.issuperset(name)


def source_of(name: str) -> str:
    """Return the source of a metrics file: "" for the run, "tensorboard" or "spoken", or "rank 2" for another rank.

    Files of ranks other than 0 end with ``.rank2``.
    """
    if name in EXTERNAL_METRICS:
        return name
    stem, _, rank = name.rpartition(_RANK_SUFFIX)
    is_rank = stem and rank.isdigit() and rank.isascii() and len(rank) < 6 and rank[0] != "0"
    return RANK_SOURCE + rank if is_rank else ""


def file_of_rank(name: str, rank: int) -> str:
    """Return the name of a metrics file for a rank."""
    return "%s%s%d" % (name, _RANK_SUFFIX, rank) if rank else name


def rank_number(source: str) -> int:
    """Return the number of a source such as "rank 2", or 0 for all other sources."""
    number = source[len(RANK_SOURCE) :] if source.startswith(RANK_SOURCE) else ""
    return int(number) if number.isdigit() and number.isascii() and len(number) < 6 else 0


def rank_name(rank: int, metric: str) -> str:
    """Return the name under which the metric of another rank is shown, such as ``rank 2/loss``."""
    return "%s%d/%s" % (RANK_SOURCE, rank, metric)


def split_rank(name: str) -> Tuple[int, str]:
    """Return the rank and the metric for a name such as ``rank 2/loss``, or 0 and the name for all others."""
    source, slash, metric = name.partition("/")
    rank = rank_number(source) if slash else 0
    return (rank, metric) if rank else (0, name)


def bytes_left(offsets: Mapping[str, int]) -> int:
    """Return how many more bytes of the metrics files may be read, given these offsets."""
    return MAX_BYTES - sum(offset for name, offset in offsets.items() if name.startswith(PREFIX))


def files_left(offsets: Mapping[str, int]) -> int:
    """Return how many more metrics files may be read, given these offsets."""
    return MAX_FILES - sum(name.startswith(PREFIX) for name in offsets)


def scan_folder(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder. A link is not followed."""
    if os.name == "nt":  # Windows cannot list a folder by handle
        with os.scandir(folder) as listing:
            yield from listing
        return
    handle = os.open(folder, FOLDER | NOFOLLOW)
    try:
        with os.scandir(handle) as listing:
            yield from listing
    finally:
        os.close(handle)


def list_unread(folder: str) -> List[str]:
    """Describe entries of the metrics folder that exceed the limits or are not metrics files."""
    unread = UnreadFiles()
    files = size = 0
    try:
        for entry in scan_folder(folder):
            status = _status_of(entry)
            if status is None or not stat.S_ISREG(status.st_mode):
                unread.add(PREFIX + entry.name, "not a file")
            elif not is_metric_file(entry.name):
                unread.add(PREFIX + entry.name, "not a metrics file name")
            else:
                files, size = files + 1, size + status.st_size
            if files >= MAX_FILES * _COUNT_FACTOR:
                break
    except FileNotFoundError:
        pass  # nothing was logged
    except OSError as error:
        unread.add("metrics", "cannot be listed (%s)" % error.strerror)
    lines = sorted(unread.lines())
    if files > MAX_FILES or size > MAX_BYTES:
        totals = "{:,} files with {:,} bytes".format(files, size)
        lines.append("metrics: {}; at most {:,} files and {:,} bytes are read".format(totals, MAX_FILES, MAX_BYTES))
    return lines


def _status_of(entry: os.DirEntry[str]) -> Optional[os.stat_result]:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None  # just removed
