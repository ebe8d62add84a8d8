"""``mlw project link`` and ``mlw project new-id``, and the question before a submit that makes them unnecessary."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from ..config.project import Project, find_project, give_new_id
from ..config.project_roots import Folders, SameId, check_root, claim_root, link_root
from ..errors import ConfigError
from ..history.store import History
from ..paths import user_paths
from ..report.plain import plain
from . import render
from .options import debugging, in_project, the_project


def own_project(project: Project, history: History, *, dry_run: bool) -> Project:
    """The project, once it is clear that its ID is its own; asks on a terminal, else raises ``SameId``."""
    try:
        (check_root if dry_run else claim_root)(history.paths, project, _folders(history))
    except SameId as error:
        if dry_run:
            render.warn(f"{error.message}; {error.hint}")
            return project
        if not (render.terminal(sys.stdin) and render.terminal(sys.stderr)):
            raise
        return _ask(project, history, error)
    return project


def check_project(project: Project, history: History) -> None:
    """Raise ``SameId`` where the project may have copied the ID of another."""
    check_root(history.paths, project, _folders(history))


def _ask(project: Project, history: History, error: SameId) -> Project:
    render.message(f"{error.message[0].upper()}{error.message[1:]}.")
    what = "run history, container home, and shared folder"
    question = f"Was this project moved from there (it keeps its {what})?" if error.moved else f"Share its {what}?"
    if click.confirm(question, err=True):
        _link(project, history)
        return project
    return _renew(project, history)


def _link(project: Project, history: History) -> None:
    link_root(history.paths, project, _folders(history))
    render.message(f"{plain(str(project.root))} now uses the run history and folders of project ID {project.id}")


def _renew(project: Project, history: History) -> Project:
    new = give_new_id(project)
    link_root(history.paths, new, _folders(history))
    render.message(f"the project ID is now {new.id}; it was {project.id} (aml_config/project.json)")
    return new


def link_restored(folder: Path, project_id: str, history: History) -> None:
    """The user restored the code of their own run: it is the same project, without a question."""
    try:
        project = find_project(folder)
    except ConfigError:
        return  # its files are damaged, as they were then: every command that needs them reports it
    if project.id == project_id and project.root == Path(os.path.realpath(folder)):
        link_root(history.paths, project, _folders(history))


def _folders(history: History) -> Folders:
    def folders(digits: str) -> list[str]:
        from ..history.overview import project_folders  # noqa: PLC0415 - only for the first submit of a project

        return project_folders(history, digits)

    return folders


@click.command(epilog="Example: mlw project link")
@in_project
@debugging
def link(folder: str | None) -> None:
    """Share the data of the project with this ID.

    Shares the run history, container home, and shared folder. Use it for a moved project or a second working copy of
    your own. Code in this folder can then read and change those files.
    """
    _link(the_project(folder), History(user_paths()))


@click.command("new-id", epilog="Example: mlw project new-id")
@in_project
@debugging
def new_id(folder: str | None) -> None:
    """Give the project a new ID.

    The project gets its own run history, container home, and shared folder. Use it for a copy or a fork. Earlier runs
    keep the old ID.
    """
    _renew(the_project(folder), History(user_paths()))
