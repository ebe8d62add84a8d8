"""The projects that this user has opened, and those that runs were submitted from."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from ...config.project import Project, find_project
from ...errors import ConfigError, UnknownName
from ...remote.journal import read_json, write_whole

_MOST = 200


@dataclass(frozen=True)
class Known:
    """A project's folder, under a name that fits into an address."""

    key: str
    path: Path
    opened: float  # when it was last opened here


class Projects:
    """A small file of ours; the folders themselves are the truth."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

    def known(self) -> list[Known]:
        """The last opened first."""
        told = read_json(str(self._file)) or {}
        found = [Known(key_of(Path(path)), Path(path), float(at)) for path, at in told.items() if _is_time(at)]
        return sorted(found, key=lambda one: -one.opened)

    def remember(self, path: Path) -> Known:
        whole = Path(os.path.realpath(path))
        with self._lock:
            told = {str(one.path): one.opened for one in self.known()[: _MOST - 1]}
            told[str(whole)] = time.time()
            write_whole(str(self._file), told)
        return Known(key_of(whole), whole, told[str(whole)])

    def forget(self, key: str) -> None:
        with self._lock:
            write_whole(str(self._file), {str(one.path): one.opened for one in self.known() if one.key != key})

    def open(self, key: str) -> Project:
        """The project under this name; ``UnknownName`` or ``ConfigError`` if there is none any more."""
        found = next((one for one in self.known() if one.key == key), None)
        if found is None:
            raise UnknownName("project", key, [], "open its folder on the page Projects")
        project = find_project(found.path)
        if Path(os.path.realpath(project.root)) != found.path:
            raise ConfigError(f"{found.path} is no project any more", "open another one on the page Projects")
        return project


def key_of(path: Path) -> str:
    """Two copies of a project have the same id, so it is the folder that counts."""
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:12]


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
