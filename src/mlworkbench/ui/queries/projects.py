"""Projects that the user has opened, and projects from which runs were submitted."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...config.project_files import FOLDER
from ...config.project_folder import Project, find_project
from ...errors import ConfigError, MlwError, UnknownName
from ...history.run_counts import last_runs
from ...history.store import History
from ...model import Run
from ...remote.shared.atomic_files import read_json, write_atomic

_MAX_KNOWN = 400  # maximum number of folders in the file
_MAX_SHOWN = 200


@dataclass(frozen=True)
class KnownProject:
    """Project folder with a key for URLs."""

    key: str
    path: Path
    opened: float  # time when it was last opened here


@dataclass(frozen=True)
class Card:
    """Entry in the project list, with the last run."""

    key: str
    name: str
    path: Path
    last: Run | None
    trouble: str | None  # why it cannot be opened


class Projects:
    """Known projects, stored in a small file. The folders themselves are authoritative."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

    def recent(self) -> list[KnownProject]:
        """Return the known projects, most recently opened first."""
        projects = [
            KnownProject(key_of(Path(path)), Path(path), float(at)) for path, at in self._read().items() if _is_time(at)
        ]
        return sorted(projects, key=lambda project: -project.opened)

    def add(self, path: Path) -> KnownProject:
        real_path = Path(os.path.realpath(path))
        with self._lock:
            self._write({**self._read(), str(real_path): time.time()})
        return next(project for project in self.recent() if project.path == real_path)

    def discover(self, folders: Mapping[str, float]) -> None:
        """Add folders from which runs were submitted, except those that the user removed from the list."""
        with self._lock:
            known = self._read()
            new = {path: at for path, at in folders.items() if path not in known}
            if new:
                self._write({**known, **new})

    def forget(self, key: str) -> None:
        """Remove a project from the list.

        The folder is not changed, and the project's runs do not add it again.
        """
        with self._lock:
            known = self._read()
            self._write({path: None if key_of(Path(path)) == key else at for path, at in known.items()})

    def _read(self) -> dict[str, Any]:
        return read_json(str(self._file)) or {}

    def _write(self, known: dict[str, Any]) -> None:
        newest = sorted(known.items(), key=lambda item: -item[1] if _is_time(item[1]) else 0.0)
        write_atomic(str(self._file), dict(newest[:_MAX_KNOWN]))

    def open(self, key: str) -> Project:
        """Open a project by key; raise ``UnknownName`` or ``ConfigError`` if it no longer exists."""
        project_entry = next((project for project in self.recent() if project.key == key), None)
        if project_entry is None:
            names = [project.key for project in self.recent()]
            raise UnknownName("project", key, names, "open its folder on the Projects page")
        project = find_project(project_entry.path)
        if Path(os.path.realpath(project.root)) != project_entry.path:
            raise ConfigError(
                f"{project_entry.path} is no longer a project", "open another project on the Projects page"
            )
        return project


def key_of(path: Path) -> str:
    """Return the key of a folder.

    The key is derived from the path, because copies of a project have the same ID.
    """
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:12]


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def cards(history: History, projects: Projects) -> list[Card]:
    """Return the user's projects, including those known only from submitted runs."""
    last = {run.spec.project_id: run for run in last_runs(history, _MAX_SHOWN)}
    folders = {os.path.realpath(run.spec.project_path): run.spec.created for run in last.values()}
    projects.discover({path: at for path, at in folders.items() if os.path.isdir(os.path.join(path, FOLDER))})
    return [_card(project, last) for project in projects.recent()[:_MAX_SHOWN]]


def _card(known: KnownProject, last: Mapping[str, Run]) -> Card:
    try:
        if not os.path.isdir(known.path):
            raise ConfigError("the folder no longer exists")
        project = find_project(known.path)
        if Path(os.path.realpath(project.root)) != known.path:
            raise ConfigError("the folder is no longer a project")
    except MlwError as error:
        return Card(known.key, known.path.name, known.path, None, error.message)
    return Card(known.key, project.name, known.path, last.get(project.id), None)
