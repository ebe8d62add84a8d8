"""``mlw project link`` and ``mlw project new-id``, and the prompt for copied projects before a submit."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from ..config.project_folder import Project, assign_new_id, find_project
from ..config.project_id_folders import DuplicateProjectId, FolderLookup, check_root, claim_root, link_root
from ..errors import ConfigError
from ..history.store import History
from ..paths import user_paths
from ..sanitize import plain
from . import render
from .options import get_project, global_options, project_option


def confirm_project_id(project: Project, history: History, *, dry_run: bool) -> Project:
    """Check the project's ID before a submission. Return the project, possibly with a new ID.

    If another folder owns the ID, prompt on a terminal; otherwise, raise ``DuplicateProjectId``.
    """
    try:
        (check_root if dry_run else claim_root)(history.paths, project, _folder_finder(history))
    except DuplicateProjectId as error:
        if dry_run:
            render.warn(f"{error.message}; {error.hint}")
            return project
        if not (render.is_terminal(sys.stdin) and render.is_terminal(sys.stderr)):
            raise
        return _ask_moved_or_copied(project, history, error)
    return project


def check_project(project: Project, history: History) -> None:
    """Raise ``DuplicateProjectId`` if the project may be a copy that has another project's ID."""
    check_root(history.paths, project, _folder_finder(history))


def _ask_moved_or_copied(project: Project, history: History, error: DuplicateProjectId) -> Project:
    render.message(f"{error.message[0].upper()}{error.message[1:]}.")
    data = "run history, container home, and shared folder"
    question = f"Was this project moved from there (it keeps its {data})?" if error.moved else f"Share its {data}?"
    if click.confirm(question, err=True):
        _link_project(project, history)
        return project
    return _assign_new_id(project, history)


def _link_project(project: Project, history: History) -> None:
    link_root(history.paths, project, _folder_finder(history))
    render.message(f"{plain(str(project.root))} now uses the run history and folders of project ID {project.id}")


def _assign_new_id(project: Project, history: History) -> Project:
    updated = assign_new_id(project)
    link_root(history.paths, updated, _folder_finder(history))
    render.message(f"the project ID is now {updated.id}; it was {project.id} (aml_config/project.json)")
    return updated


def link_restored(folder: Path, project_id: str, history: History) -> None:
    """Link restored code to its project without a prompt: the user restored their own run."""
    try:
        project = find_project(folder)
    except ConfigError:
        return  # the project files were already invalid in the run; the next command in the folder reports this
    if project.id == project_id and project.root == Path(os.path.realpath(folder)):
        link_root(history.paths, project, _folder_finder(history))


def _folder_finder(history: History) -> FolderLookup:
    def folders(digits: str) -> list[str]:
        from ..history.run_counts import project_folders  # noqa: PLC0415 - only for the first submit of a project

        return project_folders(history, digits)

    return folders


@click.command(epilog="Example: mlw project link")
@project_option
@global_options
def link(folder: str | None) -> None:
    """Share the data of the project with this ID.

    Shares the run history, container home, and shared folder. Use it for a moved project or a second working copy of
    your own. Code in this folder can then read and change those files.
    """
    _link_project(get_project(folder), History(user_paths()))


@click.command("new-id", epilog="Example: mlw project new-id")
@project_option
@global_options
def new_id(folder: str | None) -> None:
    """Give the project a new ID.

    The project gets its own run history, container home, and shared folder. Use it for a copy or a fork. Earlier runs
    keep the old ID.
    """
    _assign_new_id(get_project(folder), History(user_paths()))
