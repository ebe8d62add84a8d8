"""Training data that a script writes outside of its working copy: it is neither recorded nor collected.

The open files of its processes show it. A file that is open only for a moment may be missed.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Dict, Iterable, List

    from .script_files import ScriptFiles

_MAX_FILES = 5000  # maximum open files examined at a time
_MAX_FOLDERS = 20
_KINDS = (
    (re.compile(r".*\.tfevents\."), "TensorBoard data"),
    (re.compile(r".*\.wandb$"), "W&B data"),
    (re.compile(r".*mlflow.*\.(db|sqlite3?)$"), "MLflow data"),
    (re.compile(r".*\.(ckpt|pt|pth|safetensors|h5|keras)$"), "checkpoints"),
)
# Caches, and folders for temporary files. Shared folders of mlw are in a hidden folder, too.
_IGNORED = re.compile(r".*/(\.|tmp[a-z0-9_]{8}/|[^/]*cache[^/]*/)")
_REASON = "%s outside of the working copy, not recorded and not kept; write to outputs/ instead"


class OutsideFiles:
    """Folders outside of a run's folder to which its processes write."""

    def __init__(self, run_folder: str, proc: str = "/proc") -> None:
        self._inside = run_folder + "/"
        self._proc = proc
        # A container may have the run folder in another place.
        self._inside_container = "/%s/work/" % os.path.basename(run_folder)
        self._folders: Dict[str, str] = {}  # folder → kind of data

    def look(self, pids: Iterable[int]) -> None:
        """Examine the open files of these processes."""
        left = _MAX_FILES
        for pid in pids:
            folder = "%s/%d/fd" % (self._proc, pid)
            try:
                names: List[str] = os.listdir(folder)[: max(0, left)]
            except OSError:
                continue  # the process has ended, or belongs to another user, as in some containers
            left -= len(names)
            for name in names:
                try:
                    self._add(os.readlink(folder + "/" + name), pid, name)
                except OSError:
                    continue

    def _add(self, path: str, pid: int, descriptor: str) -> None:
        folder, _, file = path.rpartition("/")
        if not folder or folder in self._folders or len(self._folders) >= _MAX_FOLDERS:
            return
        kind = next((kind for pattern, kind in _KINDS if pattern.match(file)), None)
        if kind is None or path.startswith(self._inside) or self._inside_container in path or _IGNORED.match(path):
            return
        if self._is_written(pid, descriptor):
            self._folders[folder] = kind

    def _is_written(self, pid: int, descriptor: str) -> bool:
        with open("%s/%d/fdinfo/%s" % (self._proc, pid, descriptor), "rb") as file:
            flags = re.search(rb"^flags:\s*([0-7]+)$", file.read(1000), re.MULTILINE)
        return flags is not None and int(flags.group(1), 8) & os.O_ACCMODE != os.O_RDONLY

    def describe(self, files: ScriptFiles) -> None:
        for folder in sorted(self._folders):
            files.unread.add(folder, _REASON % self._folders[folder])
