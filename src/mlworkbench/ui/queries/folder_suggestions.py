"""Folders of this machine, for whoever types the name of one. Only folders are told, and nothing of what they hold."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ...config.place import FOLDER
from ...errors import UsageError

_MOST = 40
_LOOKED_AT = 20_000


@dataclass(frozen=True)
class Place:
    """A folder that the typed text may mean."""

    path: str
    name: str
    project: bool  # it is one already


@dataclass(frozen=True)
class Typed:
    """What was typed: whether it is a folder, a project, and what it may become."""

    path: str
    exists: bool
    project: bool
    places: tuple[Place, ...]
    trouble: str = ""


def whole(text: str) -> str:
    """``~`` is the home folder; a text that begins otherwise is meant from there."""
    if "\0" in text:
        raise UsageError("invalid folder name")
    expanded = os.path.expanduser(text.strip() or "~")
    return os.path.join(os.path.expanduser("~"), expanded)


def complete(text: str) -> Typed:
    """The folders that begin like the last part of the text; all those in it if it ends with a slash."""
    path = whole(text)
    is_inside = not text.strip() or text.rstrip(" ").endswith(os.sep)
    above, begin = (path, "") if is_inside else os.path.split(path)
    exists = os.path.isdir(path)
    trouble = ""
    found: list[Place] = []
    try:
        with os.scandir(above) as entries:
            for count, entry in enumerate(entries):
                if count > _LOOKED_AT:
                    break
                if _fits(entry, begin):
                    found.append(Place(entry.path, entry.name, is_project(entry.path)))
    except OSError as error:
        trouble = f"{above}: {error.strerror}"
    found.sort(key=lambda one: (not one.project, one.name.casefold()))
    return Typed(path, exists, exists and is_project(path), tuple(found[:_MOST]), trouble)


def is_project(path: str) -> bool:
    return os.path.isdir(os.path.join(path, FOLDER)) or os.path.isfile(os.path.join(path, ".azureml", "project.json"))


def the_folder(text: str) -> Path:
    """The folder that was typed; ``UsageError`` in words if it is none."""
    path = whole(text)
    if not os.path.isdir(path):
        there = "is not a folder" if os.path.lexists(path) else "does not exist"
        raise UsageError(f"{path} {there}", "enter the full path of a folder on this machine")
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"no permission to read {path}")
    return Path(os.path.realpath(path))


def _fits(entry: os.DirEntry[str], begin: str) -> bool:
    if entry.name.startswith(".") and not begin.startswith("."):
        return False
    if not entry.name.casefold().startswith(begin.casefold()):
        return False
    try:
        return entry.is_dir() and not any("\ud800" <= sign <= "\udfff" for sign in entry.name)
    except OSError:
        return False
