"""Files that a script writes outside of ``outputs/``: ``Keep`` collects them, and the summary names the others.

The script may have created any link, so every folder is opened relative to its parent, without
following links.
"""

from __future__ import annotations

import os
import re
import stat
import time

from .shared.folder_tree import FolderHandles, join, parents, portable
from .shared.snapshot_manifest import read_record
from .shared.unread_files import UnreadFiles

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Container, Dict, Iterator, List, Optional, Sequence, Tuple

    from .shared.layout import RunFolder

OUTPUTS = "outputs"
MAX_NAMED = 20
MAX_ENTRIES = 20_000
_MAX_SECONDS = 2.0
_MAX_PATH = 200  # characters
# Caches, and files that Spark creates in the current folder. Names with a leading dot are also ignored.
_IGNORED = re.compile(r"\.|__pycache__$|.*cache$|.*\.pyc$|(spark-warehouse|metastore_db|derby\.log)$")
_EVENT_FILE = "tfevents"  # in the names of TensorBoard's event files, whose values are recorded as metrics


class _NotKept(Exception):
    """An error for a path that is not collected. The argument is the reason."""


def collect_kept(run: RunFolder, paths: Sequence[str]) -> List[str]:
    """Move files and folders of the working copy into ``outputs/``. Return lines about those that cannot be moved.

    A move takes no space and keeps links as they are. Missing files are no error: not every run writes
    all of them.
    """
    omitted = UnreadFiles()
    for path in paths:
        try:
            _move(run.work, path)
        except FileNotFoundError:
            continue
        except _NotKept as error:
            omitted.add(path, str(error))
        except OSError as error:
            omitted.add(path, "not collected: %s" % (error.strerror or error))
    return omitted.lines()


def _move(work: str, path: str) -> None:
    names = path.split("/")
    if names[0] == OUTPUTS or any(name in ("", ".", "..") or "\0" in name for name in names):
        raise _NotKept("not a path in the working copy")
    name = names[-1]
    with FolderHandles(work) as sources, FolderHandles(work) as targets:
        source = sources.open("/".join(names[:-1]))
        mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise _NotKept("a link" if stat.S_ISLNK(mode) else "not a file or folder")
        target = _make_folders(targets, [OUTPUTS] + names[:-1])
        if _exists(name, target):
            raise _NotKept("outputs/ contains another file with this name")
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)


def move_into(handles: FolderHandles, source: str, path: str) -> bool:
    """Move a file of mlw to a path in the working copy. Return False if something else is there."""
    names = path.split("/")
    target = _make_folders(handles, names[:-1])
    if _exists(names[-1], target):
        return False
    os.rename(source, names[-1], dst_dir_fd=target)
    return True


def _make_folders(handles: FolderHandles, names: Sequence[str]) -> int:
    folder = ""
    for name in names:
        try:
            os.mkdir(name, 0o700, dir_fd=handles.open(folder))
        except FileExistsError:
            pass
        folder = join(folder, name)
    return handles.open(folder)


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def find_unkept(run: RunFolder, recorded: Container[str] = ()) -> List[str]:
    """Return the names of files and folders that the script created outside of ``outputs/``, largest first.

    Folders end with a slash. Files of the project are not named, even if the script changed them, nor is
    anything in ``recorded``. The search is limited in time and entries.
    """
    record = read_record(run.placed)
    project = record.get("files") if isinstance(record, dict) else None
    if not isinstance(project, dict):
        return []
    sizes: Dict[str, int] = {}
    try:
        with FolderHandles(run.work) as handles:
            for name, size in _new_files(handles, project, recorded):
                sizes[name] = sizes.get(name, 0) + size
    except OSError:  # the script has removed or replaced its working copy
        pass
    named = [name for name in sizes if name.isprintable() and len(name) <= _MAX_PATH]
    return [portable(name) for name in sorted(named, key=lambda name: (-sizes[name], name))[:MAX_NAMED]]


def _new_files(handles: FolderHandles, project: Dict[str, Any], recorded: Container[str]) -> Iterator[Tuple[str, int]]:
    """Yield the size of each new file, with its path or the path of its topmost new folder."""
    folders = parents(project)
    pending: List[Tuple[str, Optional[str]]] = [("", None)]
    remaining, deadline = MAX_ENTRIES, time.monotonic() + _MAX_SECONDS
    while pending:
        folder, owner = pending.pop()
        try:
            with os.scandir(handles.open(folder)) as entries:
                for entry in entries:
                    remaining -= 1
                    if remaining < 0 or time.monotonic() > deadline:
                        return
                    path = join(folder, entry.name)
                    if path == OUTPUTS or path in project or path in recorded or _IGNORED.match(entry.name):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((path, owner or (None if path in folders else path + "/")))
                    elif entry.is_file(follow_symlinks=False) and _EVENT_FILE not in entry.name:
                        yield owner or path, entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # the script made it unreadable, or a running process removed it
