"""Record which folders use a project ID, in ``projects/<first 8 digits of the ID>.json``.

The ID selects a project's run history, container home, and shared folder, but it is only text in a
project file: a copy has the same ID, and a hostile project may use another project's ID. Therefore,
the first folder that submits a run owns the ID, and every other folder needs the user's consent.
The record is in the user's data folder, because a project could change a record of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import ConfigError, HistoryError
from ..paths import UserPaths
from ..remote.shared.atomic_files import read_json, write_atomic, write_once
from .project_folder import Project

_DIGITS = 8  # digits of the ID in a shared folder's name; projects with the same digits share the folder
_MAX_FOLDERS = 200  # maximum per ID; the oldest are dropped

FolderLookup = Callable[[str], Sequence[str]]  # first digits of an ID → project folders of earlier runs, newest first


class DuplicateProjectId(ConfigError):
    """Error for an ID that another folder also uses, until the user decides whether to share it."""

    code = more = "same-project-id"

    def __init__(self, other: str) -> None:
        self.moved = not os.path.lexists(other)
        if self.moved:
            message = f"this project has the same ID as the project in {other}, which no longer exists"
            hint = "if the project was moved from there, run 'mlw project link'"
        else:
            message = f"this project has the same ID as the project in {other}"
            hint = "to share its run history, container home, and shared folder, run 'mlw project link'"
        super().__init__(message, f"{hint}; to share nothing, run 'mlw project new-id'")


def check_root(paths: UserPaths, project: Project, earlier: FolderLookup) -> None:
    """Raise ``DuplicateProjectId`` if another folder owns the project's ID. Writes nothing.

    ``earlier`` returns the folders of earlier runs and is used if the record is missing or damaged.
    """
    roots = _read_roots(paths, project) or earlier(project.id[:_DIGITS])
    if (
        roots
        and not any(_is_same_folder(root, project.root) for root in roots)
        and not _is_working_copy(paths, project)
    ):
        raise DuplicateProjectId(roots[0])


def claim_root(paths: UserPaths, project: Project, earlier: FolderLookup) -> None:
    """Check the ID before a submission. Record the first folder as the ID's owner."""
    check_root(paths, project, earlier)
    if _read_roots(paths, project) or _is_working_copy(paths, project):
        return
    roots = [
        str(project.root),
        *(root for root in earlier(project.id[:_DIGITS]) if not _is_same_folder(root, project.root)),
    ]
    path = _record_path(paths, project)
    try:
        _make_folder(path)
        if not write_once(str(path), {"roots": roots}):
            if _read_roots(paths, project):
                check_root(paths, project, earlier)  # another process has recorded the owner
            else:
                write_atomic(str(path), {"roots": roots})  # the record is damaged
    except OSError as error:
        raise _write_error(path, error) from error


def link_root(paths: UserPaths, project: Project, earlier: FolderLookup) -> None:
    """Record the user's consent that this folder shares the ID and its data with earlier folders."""
    roots = _read_roots(paths, project) or earlier(project.id[:_DIGITS])
    others = [root for root in roots if not _is_same_folder(root, project.root)]
    path = _record_path(paths, project)
    try:
        _make_folder(path)
        write_atomic(str(path), {"roots": [str(project.root), *others][:_MAX_FOLDERS]})
    except OSError as error:
        raise _write_error(path, error) from error


def _is_same_folder(root: str, folder: Path) -> bool:
    """Return whether two paths are the same folder, even through a link or a bind mount."""
    if root == str(folder):
        return True
    try:
        return os.path.samefile(root, folder)
    except (OSError, ValueError):
        return False


def _is_working_copy(paths: UserPaths, project: Project) -> bool:
    """Return whether the project folder is the working copy of one of the project's own runs.

    A running script is allowed to submit runs from there.
    """
    folder = project.root.parent
    if project.root.name != "work" or str(folder.parent) != os.path.realpath(paths.root.runs):
        return False
    # Read the spec from the run folder, because the script can change the working copy.
    return (read_json(paths.root.run(folder.name).spec) or {}).get("project_id") == project.id


def _record_path(paths: UserPaths, project: Project) -> Path:
    return paths.home / "projects" / f"{project.id[:_DIGITS]}.json"


def _read_roots(paths: UserPaths, project: Project) -> list[str]:
    roots = (read_json(str(_record_path(paths, project))) or {}).get("roots")
    return [root for root in roots if isinstance(root, str) and root] if isinstance(roots, list) else []


def _make_folder(path: Path) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)


def _write_error(path: Path, error: OSError) -> HistoryError:
    return HistoryError(f"cannot write to {path}: {error.strerror}", "set MLW_HOME to a folder you can write")
