"""Saved views: filters, order, grouping, and columns of run lists, by name.

They are stored in this user's data folder, in one file for each project and one for lists of all projects. A cloned
project contains none, and cannot change them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from .errors import HistoryError, UnknownName, UsageError
from .paths import UserPaths
from .remote.shared import file_lock
from .remote.shared.atomic_files import read_json, write_atomic

MAX_NAME = 100
_MAX_VIEWS = 200
BROWSER_ONLY = ("chart", "top_level")
_MAX_VALUES, _MAX_TEXT = 100, 4000  # maximum values of an option, and maximum characters of each


@dataclass(frozen=True)
class View:
    """The settings of a view, most of them named as the options of ``mlw history list``."""

    text: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    script: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    since: str | None = None
    parent: str | None = None
    children: bool = False
    archived: bool = False
    sort: str | None = None
    group: str | None = None
    columns: str | None = None
    limit: int | None = None
    # Settings of the browser UI, which are no options of the command.
    chart: str | None = None
    top_level: bool = False  # exclude child runs, which searches on the command line include

    def to_json(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value != getattr(View, name)
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> View:
        """Parse settings. Unknown and invalid ones are ignored."""
        values: dict[str, Any] = {}
        for item in fields(View):
            name, default, value = item.name, item.default, data.get(item.name)
            if name == "limit":
                values[name] = value if type(value) is int and value > 0 else None
            elif isinstance(default, tuple):
                parts = value[:_MAX_VALUES] if isinstance(value, list) else ()
                values[name] = tuple(part[:_MAX_TEXT] for part in parts if isinstance(part, str))
            elif isinstance(default, bool):
                values[name] = value is True
            else:
                values[name] = value[:_MAX_TEXT] if isinstance(value, str) else None
        return View(**values)

    def arguments(self) -> list[str]:
        """Return the options of ``mlw history list`` for this view."""
        result = []
        for name, value in self.to_json().items():
            if name in BROWSER_ONLY:
                continue
            for each in value if isinstance(value, list) else [value]:
                result += [f"--{name}"] if each is True else [f"--{name}={each}"]
        return result


class SavedViews:
    """The saved views of a project, or of lists of all projects."""

    def __init__(self, paths: UserPaths, project: str | None) -> None:
        self._project = project
        self._folder = paths.home / "views"
        # The ID of a project is untrusted, so it is not a file name.
        name = "all" if project is None else hashlib.sha256(project.encode("utf-8", "replace")).hexdigest()[:32]
        self._path = str(self._folder / f"{name}.json")

    def all(self) -> dict[str, View]:
        """Return the views by name, in alphabetical order."""
        stored = (read_json(self._path) or {}).get("views")
        views = stored if isinstance(stored, dict) else {}
        return {name: View.from_json(views[name]) for name in sorted(views) if isinstance(views[name], dict)}

    def get(self, name: str) -> View:
        views = self.all()
        if name not in views:
            raise _unknown(name, views)
        return views[name]

    def save(self, name: str, update: Callable[[View], View], *, replace: bool = False) -> None:
        """Save what ``update`` returns for the existing view with this name, or for an empty view."""
        checked = check_name(name)

        def change(views: dict[str, View]) -> None:
            if checked in views and not replace:
                raise UsageError(f"view {checked!r} already exists", "use another name, or replace it with --force")
            if len(views) >= _MAX_VIEWS and checked not in views:
                raise UsageError(f"there are already {_MAX_VIEWS} views", "delete one: mlw history view delete NAME")
            views[checked] = update(views.get(checked, View()))

        self._change(change)

    def rename(self, name: str, new_name: str) -> None:
        checked = check_name(new_name)

        def change(views: dict[str, View]) -> None:
            if name not in views:
                raise _unknown(name, views)
            if checked != name and checked in views:
                raise UsageError(f"view {checked!r} already exists", "use another name, or delete that view first")
            views[checked] = views.pop(name)

        self._change(change)

    def delete(self, name: str) -> None:
        def change(views: dict[str, View]) -> None:
            if views.pop(name, None) is None:
                raise _unknown(name, views)

        self._change(change)

    def _change(self, change: Callable[[dict[str, View]], None]) -> None:
        try:
            with self._lock():
                views = self.all()
                change(views)
                data = {name: view.to_json() for name, view in views.items()}
                write_atomic(self._path, {"project": self._project, "views": data})
        except OSError as error:
            raise HistoryError(f"cannot write {self._path}: {error.strerror}") from error

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Let no other process change views in the meantime."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            file_lock.wait_for_lock(descriptor)
            yield
        finally:
            os.close(descriptor)


def check_name(name: str) -> str:
    """Return the name of a view without spaces around it. Raise ``UsageError`` if it is invalid."""
    checked = name.strip()
    if not checked or len(checked) > MAX_NAME or not checked.isprintable() or checked.startswith("-"):
        hint = f"use 1 to {MAX_NAME} printable characters, and no - at the beginning"
        raise UsageError(f"invalid name of a view: {name[:MAX_NAME]!r}", hint)
    return checked


def _unknown(name: str, views: Mapping[str, View]) -> UnknownName:
    return UnknownName("view", name, views, otherwise="save one: mlw history view save NAME --where CONDITION")
