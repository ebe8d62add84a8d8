"""Saved views of run lists. ``project`` is a project ID, or None for lists of all projects."""

from __future__ import annotations

from collections.abc import Callable

from ...history.store import History
from ...saved_views import MAX_NAME as MAX_NAME
from ...saved_views import SavedViews, View


def views(history: History, project: str | None) -> dict[str, View]:
    """Return the views by name."""
    return SavedViews(history.paths, project).all()


def get(history: History, project: str | None, name: str) -> View:
    return SavedViews(history.paths, project).get(name)


def save(history: History, project: str | None, name: str, update: Callable[[View], View], *, replace: bool) -> None:
    """Save what ``update`` returns for the existing view with this name, or for an empty view."""
    SavedViews(history.paths, project).save(name, update, replace=replace)


def rename(history: History, project: str | None, name: str, new_name: str) -> None:
    SavedViews(history.paths, project).rename(name, new_name)


def delete(history: History, project: str | None, name: str) -> None:
    SavedViews(history.paths, project).delete(name)
