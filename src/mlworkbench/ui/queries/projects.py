"""The projects that this user has opened, and those that runs were submitted from."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...config.place import FOLDER
from ...config.project import Project, find_project
from ...errors import ConfigError, MlwError, UnknownName
from ...history.overview import last_runs
from ...history.store import History
from ...model import Run
from ...remote.shared.files import read_json, write_whole

_MOST = 400  # folders that are remembered
_SHOWN = 200


@dataclass(frozen=True)
class Known:
    """A project's folder, under a name that fits into an address."""

    key: str
    path: Path
    opened: float  # when it was last opened here


@dataclass(frozen=True)
class Card:
    """A project in the list of all: where it is, and its last run."""

    key: str
    name: str
    path: Path
    last: Run | None
    trouble: str | None  # why it cannot be opened


class Projects:
    """A small file of ours; the folders themselves are the truth."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()

    def known(self) -> list[Known]:
        """The last opened first."""
        found = [Known(key_of(Path(path)), Path(path), float(at)) for path, at in self._told().items() if _is_time(at)]
        return sorted(found, key=lambda one: -one.opened)

    def remember(self, path: Path) -> Known:
        whole = Path(os.path.realpath(path))
        with self._lock:
            self._write({**self._told(), str(whole): time.time()})
        return next(one for one in self.known() if one.path == whole)

    def meet(self, seen: Mapping[str, float]) -> None:
        """Folders from which runs were submitted at some time; those that were forgotten stay so."""
        with self._lock:
            told = self._told()
            new = {path: at for path, at in seen.items() if path not in told}
            if new:
                self._write({**told, **new})

    def forget(self, key: str) -> None:
        """The folder stays as it is, and is not met again by its runs."""
        with self._lock:
            told = self._told()
            self._write({path: None if key_of(Path(path)) == key else at for path, at in told.items()})

    def _told(self) -> dict[str, Any]:
        return read_json(str(self._file)) or {}

    def _write(self, told: dict[str, Any]) -> None:
        newest = sorted(told.items(), key=lambda one: -one[1] if _is_time(one[1]) else 0.0)
        write_whole(str(self._file), dict(newest[:_MOST]))

    def open(self, key: str) -> Project:
        """The project under this name; ``UnknownName`` or ``ConfigError`` if there is none any more."""
        found = next((one for one in self.known() if one.key == key), None)
        if found is None:
            names = [one.key for one in self.known()]
            raise UnknownName("project", key, names, "open its folder on the Projects page")
        project = find_project(found.path)
        if Path(os.path.realpath(project.root)) != found.path:
            raise ConfigError(f"{found.path} is no longer a project", "open another project on the Projects page")
        return project


def key_of(path: Path) -> str:
    """Two copies of a project have the same id, so it is the folder that counts."""
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:12]


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def cards(history: History, projects: Projects) -> list[Card]:
    """The projects of this user, also those from which runs were submitted on the command line."""
    last = {run.spec.project_id: run for run in last_runs(history, _SHOWN)}
    folders = {os.path.realpath(run.spec.project_path): run.spec.created for run in last.values()}
    projects.meet({path: at for path, at in folders.items() if os.path.isdir(os.path.join(path, FOLDER))})
    return [_card(one, last) for one in projects.known()[:_SHOWN]]


def _card(known: Known, last: Mapping[str, Run]) -> Card:
    try:
        if not os.path.isdir(known.path):
            raise ConfigError("the folder no longer exists")
        project = find_project(known.path)
        if Path(os.path.realpath(project.root)) != known.path:
            raise ConfigError("the folder is no longer a project")
    except MlwError as error:
        return Card(known.key, known.path.name, known.path, None, error.message)
    return Card(known.key, project.name, known.path, last.get(project.id), None)
