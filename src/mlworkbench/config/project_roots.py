"""Which folders use a project ID, in the user's data folder: ``projects/<first 8 digits of the ID>.json``.

The ID decides which run history, container home, and shared folder a project gets, and it is only a text in a file of
the project: a copy has the same ID, and a hostile project may have copied it. So the first folder that submits a run
owns the ID, and every other folder needs the user's consent. Outside the project, for the project could change it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import ConfigError, HistoryError
from ..paths import UserPaths
from ..remote.shared.files import read_json, write_first, write_whole
from .project import Project

_DIGITS = 8  # of the ID, in the name of a shared folder: a project with the same digits gets the same folder
_MOST = 200  # folders of one ID; the oldest are dropped

Folders = Callable[[str], Sequence[str]]  # first digits of an ID → project folders of earlier runs, newest first


class SameId(ConfigError):
    """Another folder has the same project ID, and the user has not decided whether it is the same project."""

    code = more = "same-project-id"

    def __init__(self, other: str) -> None:
        self.moved = not os.path.lexists(other)
        if self.moved:
            message = f"this project has the same ID as the project in {other}, which no longer exists"
            first = "if the project was moved from there, run 'mlw project link'"
        else:
            message = f"this project has the same ID as the project in {other}"
            first = "to share its run history, container home, and shared folder, run 'mlw project link'"
        super().__init__(message, f"{first}; to share nothing, run 'mlw project new-id'")


def check_root(paths: UserPaths, project: Project, earlier: Folders) -> None:
    """Raise ``SameId`` if another folder owns the project's ID; writes nothing.

    ``earlier`` is asked where there is no record: for runs that are older than the record, or than its damage.
    """
    roots = _read(paths, project) or earlier(project.id[:_DIGITS])
    if roots and not any(_same(root, project.root) for root in roots) and not _is_working_copy(paths, project):
        raise SameId(roots[0])


def claim_root(paths: UserPaths, project: Project, earlier: Folders) -> None:
    """The same before a submit: the first folder becomes the owner of the ID."""
    check_root(paths, project, earlier)
    if _read(paths, project) or _is_working_copy(paths, project):
        return
    roots = [str(project.root), *(root for root in earlier(project.id[:_DIGITS]) if not _same(root, project.root))]
    place = _place(paths, project)
    try:
        _make_folder(place)
        if not write_first(str(place), {"roots": roots}):
            if _read(paths, project):
                check_root(paths, project, earlier)  # another process was quicker
            else:
                write_whole(str(place), {"roots": roots})  # damaged
    except OSError as error:
        raise _unwritable(place, error) from error


def link_root(paths: UserPaths, project: Project, earlier: Folders) -> None:
    """Record the user's consent: this folder shares the ID, and all that belongs to it, with those before it."""
    roots = _read(paths, project) or earlier(project.id[:_DIGITS])
    others = [root for root in roots if not _same(root, project.root)]
    place = _place(paths, project)
    try:
        _make_folder(place)
        write_whole(str(place), {"roots": [str(project.root), *others][:_MOST]})
    except OSError as error:
        raise _unwritable(place, error) from error


def _same(root: str, here: Path) -> bool:
    """Also where a link or a bind mount leads to the same folder."""
    if root == str(here):
        return True
    try:
        return os.path.samefile(root, here)
    except (OSError, ValueError):
        return False


def _is_working_copy(paths: UserPaths, project: Project) -> bool:
    """Whether the folder is the working copy of a run with this ID: its script submits another run."""
    folder = project.root.parent
    if project.root.name != "work" or str(folder.parent) != os.path.realpath(paths.root.runs):
        return False
    # Not from the working copy itself, which the script can change.
    return (read_json(paths.root.run(folder.name).spec) or {}).get("project_id") == project.id


def _place(paths: UserPaths, project: Project) -> Path:
    return paths.home / "projects" / f"{project.id[:_DIGITS]}.json"


def _read(paths: UserPaths, project: Project) -> list[str]:
    found = (read_json(str(_place(paths, project))) or {}).get("roots")
    return [root for root in found if isinstance(root, str) and root] if isinstance(found, list) else []


def _make_folder(place: Path) -> None:
    place.parent.mkdir(mode=0o700, exist_ok=True)


def _unwritable(place: Path, error: OSError) -> HistoryError:
    return HistoryError(f"cannot write to {place}: {error.strerror}", "set MLW_HOME to a folder you can write")
