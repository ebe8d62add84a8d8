"""Find files in the working folder to which a script logs: TensorBoard event files, W&B runs, and MLflow stores.

This must be lightweight, because it applies to every run. A folder is listed again only if its
modification time has changed, so that large projects cost little.
"""

from __future__ import annotations

import os
import time

from ..shared.folder_tree import FolderHandles
from ..shared.layout import MLFLOW_DATABASE

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set, Tuple

# Kinds of files, as named in messages
EVENTS, WANDB, MLFLOW = "event files", "W&B files", "MLflow files"
_MLFLOW_RUN = "meta.yaml"  # a run or an experiment of MLflow's file store
_MLFLOW_FOLDERS = frozenset(("metrics", "params", "tags"))  # next to it, with one file per name
_DATABASES = (".db", ".sqlite", ".sqlite3")
_RECORDED_DATABASE = "outputs/" + MLFLOW_DATABASE  # of the in-run library, which has already recorded its runs
PAUSE = 2.0  # seconds between searches; longer after a slow search
_PAUSE_FACTOR = 1000  # ratio of the pause to the duration of a search, to keep idle runs cheap
_MAX_PAUSE = 60.0
_MAX_FILES = {EVENTS: 1000, WANDB: 1000, MLFLOW: 5000}
_MAX_LISTED = max(_MAX_FILES.values())  # maximum files per folder
_MAX_FOLDERS = 10000
_MAX_PATH = 4096  # maximum characters, as in system calls: deeply nested folders could take gigabytes of memory
_RECENT = 3e9  # nanoseconds: a folder that changed this recently may change again without a new modification time
_SKIPPED_FOLDERS = frozenset((".git", ".mlflow", "node_modules", "__pycache__"))


def kind_of(name: str) -> Optional[str]:
    """Return the kind of a file, judged by its name."""
    if ".tfevents." in name:
        return EVENTS
    if name.endswith(".wandb"):
        return WANDB
    return MLFLOW if name == _MLFLOW_RUN or name.endswith(_DATABASES) else None


class TrackingFiles:
    """The files below a folder to which a script logs. Links are not followed, nor other file systems entered."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        # Kind → relative paths in the order of discovery
        self.found: Dict[str, List[str]] = {EVENTS: [], WANDB: [], MLFLOW: []}
        self.left_out: Set[str] = set()  # messages about data that is not read
        self._listed: Dict[str, int] = {"": 0}  # folder → modification time when it was listed
        self._next = 0.0

    def search(self, now: bool = False) -> bool:
        """Search for new files if a search is due, and return whether any files have been found."""
        started = time.monotonic()
        if now or started >= self._next:
            try:
                with FolderHandles(self.folder) as handles:
                    self._search(handles)
            except OSError:
                pass  # the folder no longer exists, perhaps only temporarily
            duration = time.monotonic() - started
            self._next = started + duration + min(max(PAUSE, _PAUSE_FACTOR * duration), _MAX_PAUSE)
        return any(self.found.values())

    def _search(self, handles: FolderHandles) -> None:
        device = os.fstat(handles.open("")).st_dev
        pending = list(self._listed)
        for name in pending:  # grows as new folders are found
            listed = self._listed.get(name, 0)
            try:
                status = _folder_status(handles, name)
                if status.st_dev != device or status.st_mtime_ns == listed:
                    continue
                folders, files = _list_folder(handles.open(name))
            except OSError:
                if name:
                    self._listed.pop(name, None)
                continue
            age = time.time() * 1e9 - status.st_mtime_ns
            self._listed[name] = status.st_mtime_ns if age > _RECENT else 0
            self._add_files(name, files)
            for folder in folders:
                path = os.path.join(name, folder)
                if path in self._listed:
                    continue
                if len(path) > _MAX_PATH:
                    self.left_out.add("folders whose path is longer than %d characters are not searched" % _MAX_PATH)
                elif len(self._listed) >= _MAX_FOLDERS:
                    self.left_out.add("more than %d folders; the rest are not searched" % _MAX_FOLDERS)
                else:
                    self._listed[path] = 0
                    pending.append(path)

    def _add_files(self, folder: str, files: List[str]) -> None:
        for file in files:
            name, kind = os.path.join(folder, file), kind_of(file) or EVENTS
            found = self.found[kind]
            if name in found or name == _RECORDED_DATABASE:
                continue
            if len(found) >= _MAX_FILES[kind]:
                self.left_out.add("more than %d %s; the rest are ignored" % (_MAX_FILES[kind], kind))
                continue
            found.append(name)


def _folder_status(handles: FolderHandles, name: str) -> os.stat_result:
    """Return the status of a folder without opening it, because most have not changed."""
    parent, _, folder = name.rpartition("/")
    handle = handles.open(parent)
    return os.stat(folder, dir_fd=handle, follow_symlinks=False) if folder else os.fstat(handle)


def _list_folder(handle: int) -> Tuple[List[str], List[str]]:
    """Return the sorted names of subfolders and of files to which a script logs."""
    folders: List[str] = []
    files: List[str] = []
    with os.scandir(handle) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _SKIPPED_FOLDERS and len(folders) <= _MAX_FOLDERS:
                        folders.append(entry.name)
                elif kind_of(entry.name) and len(files) <= _MAX_LISTED and entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
            except OSError:
                continue
    if _MLFLOW_RUN in files and _MLFLOW_FOLDERS.issubset(folders):  # thousands of runs would exceed the limit
        folders = [name for name in folders if name not in _MLFLOW_FOLDERS]
    return sorted(folders), sorted(files)
