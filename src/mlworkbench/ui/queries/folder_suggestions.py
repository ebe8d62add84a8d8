"""Suggestions for folder paths as the user types. Only folders are listed, never files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ...config.project_files import FOLDER
from ...errors import UsageError

_MAX_SUGGESTIONS = 40
_MAX_VISITED = 20_000


@dataclass(frozen=True)
class FolderSuggestion:
    """Folder that matches the typed text."""

    path: str
    name: str
    project: bool  # it contains a project


@dataclass(frozen=True)
class TypedPath:
    """Typed path: whether it exists, whether it is a project, and suggestions."""

    path: str
    exists: bool
    project: bool
    places: tuple[FolderSuggestion, ...]
    trouble: str = ""


def expand_path(text: str) -> str:
    """Expand ``~``, and resolve relative paths against the home folder."""
    if "\0" in text:
        raise UsageError("invalid folder name")
    expanded = os.path.expanduser(text.strip() or "~")
    return os.path.join(os.path.expanduser("~"), expanded)


def suggest_folders(text: str) -> TypedPath:
    """Suggest folders whose names start with the last part of the text.

    If the text ends with a slash, suggest all folders in that folder.
    """
    path = expand_path(text)
    is_inside = not text.strip() or text.rstrip(" ").endswith(os.sep)
    parent, prefix = (path, "") if is_inside else os.path.split(path)
    exists = os.path.isdir(path)
    trouble = ""
    suggestions: list[FolderSuggestion] = []
    try:
        with os.scandir(parent) as entries:
            for count, entry in enumerate(entries):
                if count > _MAX_VISITED:
                    break
                if _matches(entry, prefix):
                    suggestions.append(FolderSuggestion(entry.path, entry.name, is_project(entry.path)))
    except OSError as error:
        trouble = f"{parent}: {error.strerror}"
    suggestions.sort(key=lambda suggestion: (not suggestion.project, suggestion.name.casefold()))
    return TypedPath(path, exists, exists and is_project(path), tuple(suggestions[:_MAX_SUGGESTIONS]), trouble)


def is_project(path: str) -> bool:
    return os.path.isdir(os.path.join(path, FOLDER)) or os.path.isfile(os.path.join(path, ".azureml", "project.json"))


def resolve_folder(text: str) -> Path:
    """Return the typed folder. Raise ``UsageError`` if it is not a readable folder."""
    path = expand_path(text)
    if not os.path.isdir(path):
        problem = "is not a folder" if os.path.lexists(path) else "does not exist"
        raise UsageError(f"{path} {problem}", "enter the full path of a folder on this machine")
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"no permission to read {path}")
    return Path(os.path.realpath(path))


def _matches(entry: os.DirEntry[str], prefix: str) -> bool:
    if entry.name.startswith(".") and not prefix.startswith("."):
        return False
    if not entry.name.casefold().startswith(prefix.casefold()):
        return False
    try:
        return entry.is_dir() and not any("\ud800" <= sign <= "\udfff" for sign in entry.name)
    except OSError:
        return False
