"""Where a script writes TensorBoard's event files: below its folder, found while it runs. Light: every run looks.

A folder is listed again only when its time has changed, so that a look at a large project costs little.
"""

from __future__ import annotations

import os
import time

from ..shared.tree import Folders

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Dict, List, Set, Tuple

MARK = ".tfevents."
PAUSE = 2.0  # seconds between two looks, and more where one takes long
_SHARE = 1000  # a look may take such a part of the time: an idle run costs no more
_RARELY = 60.0
_MOST_FILES = 1000
_MOST_FOLDERS = 10000
_LONGEST = 4096  # characters of a path, as of one system call: nested folders would else take memory by the gigabyte
_RECENT = 3e9  # nanoseconds: a folder that changed so lately may change again within one tick of its clock
_OTHERS = frozenset((".git", ".mlflow", "node_modules", "__pycache__"))


class EventFiles:
    """The event files below a folder, as they appear. Links are not followed, nor other file systems entered."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.found: List[str] = []  # below the folder, the earlier ones first
        self.left_out: Set[str] = set()  # sentences on what is not read, and why
        self._known: Dict[str, int] = {"": 0}  # folders, and their time when they were listed
        self._next = 0.0

    def look(self, now: bool = False) -> bool:
        """Look for new ones, if it is time to; whether there is any at all."""
        began = time.monotonic()
        if now or began >= self._next:
            try:
                with Folders(self.folder) as handles:
                    self._search(handles)
            except OSError:
                pass  # the folder is away for a moment, or for good
            took = time.monotonic() - began
            self._next = began + took + min(max(PAUSE, _SHARE * took), _RARELY)
        return bool(self.found)

    def _search(self, handles: Folders) -> None:
        device = os.fstat(handles.open("")).st_dev
        waiting = list(self._known)
        for name in waiting:  # grows by the new folders that are found
            listed = self._known.get(name, 0)
            try:
                seen = _status(handles, name)
                if seen.st_dev != device or seen.st_mtime_ns == listed:
                    continue
                folders, files = _listing(handles.open(name))
            except OSError:
                if name:
                    self._known.pop(name, None)
                continue
            age = time.time() * 1e9 - seen.st_mtime_ns
            self._known[name] = seen.st_mtime_ns if age > _RECENT else 0
            self._take(name, files)
            for one in folders:
                below = os.path.join(name, one)
                if below in self._known:
                    continue
                if len(below) > _LONGEST:
                    self.left_out.add("folders whose path is longer than %d characters are not searched" % _LONGEST)
                elif len(self._known) >= _MOST_FOLDERS:
                    self.left_out.add("more than %d folders; the rest are not searched" % _MOST_FOLDERS)
                else:
                    self._known[below] = 0
                    waiting.append(below)

    def _take(self, folder: str, files: List[str]) -> None:
        for one in files:
            name = os.path.join(folder, one)
            if name in self.found:
                continue
            if len(self.found) >= _MOST_FILES:
                self.left_out.add("more than %d event files; the rest are ignored" % _MOST_FILES)
                return
            self.found.append(name)


def _status(handles: Folders, name: str) -> os.stat_result:
    """Of a folder that is not opened for it: most have not changed."""
    above, _, own = name.rpartition("/")
    handle = handles.open(above)
    return os.stat(own, dir_fd=handle, follow_symlinks=False) if own else os.fstat(handle)


def _listing(handle: int) -> Tuple[List[str], List[str]]:
    """Names of the folders and of the event files in a folder, in a fixed order."""
    folders: List[str] = []
    files: List[str] = []
    with os.scandir(handle) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _OTHERS and len(folders) <= _MOST_FOLDERS:
                        folders.append(entry.name)
                elif MARK in entry.name and len(files) <= _MOST_FILES and entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
            except OSError:
                continue
    return sorted(folders), sorted(files)
