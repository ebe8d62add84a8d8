"""``mlw project restore``: restore the code of a run to a folder."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..errors import UsageError
from ..history.store import History
from ..paths import user_paths
from ..report import units
from ..runfiles.code_restore import default_destination, restore_in_place, restore_new
from ..runs.open_run import refuse_untracked
from . import render
from .completion_types import complete_run
from .options import get_project, get_project_or_none, global_options, project_option
from .project_id import link_restored


@click.command(epilog="Example: mlw project restore --run-id demo-swift")
@click.option("-r", "--run-id", "run", required=True, metavar="ID", shell_complete=complete_run, help="Run")
@click.option("--path", metavar="NEW", help="New folder (default: next to the project)")
@click.option("--in-place", is_flag=True, help="Restore into the project folder; fails if files would be lost")
@project_option
@global_options
def restore(run: str, path: str | None, in_place: bool, folder: str | None) -> None:
    """Restore the code of a run.

    Writes the snapshot of the run into a new folder.
    """
    history = History(user_paths())
    selected = history.get(run)
    refuse_untracked(selected, "its code was not saved", "'mlw submit SCRIPT' saves the code of a run")
    root = history.paths.root
    if in_place:
        if path:
            raise UsageError("--path cannot be combined with --in-place", "remove one of them")
        project = get_project(folder)
        if project.id != selected.spec.project_id:
            raise UsageError(
                f"run {selected.id} belongs to another project, {selected.spec.project_name}", "remove --in-place"
            )
        plan = restore_in_place(root, selected, project.root)
        replaced = units.pluralize(len(plan.replace), "file")
        render.message(
            f"restored {project.root} to run {selected.id}: {replaced} replaced, {len(plan.create)} created, "
            f"{len(plan.remove)} removed"
        )
        return
    if path is None:
        current = get_project_or_none(folder)
        is_same_project = current is not None and current.id == selected.spec.project_id
        neighbor = str(current.root) if current is not None and is_same_project else selected.spec.project_path
        path = default_destination(selected, neighbor)
        if not os.path.isdir(os.path.dirname(path)):
            raise UsageError(f"folder {os.path.dirname(path)} no longer exists", "choose another folder with --path")
    count = restore_new(root, selected, Path(path))
    link_restored(Path(path), selected.spec.project_id, history)
    render.message(f"restored {units.pluralize(count, 'file')} of run {selected.id} to {path}")
