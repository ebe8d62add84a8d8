"""``mlw project restore``: the code of a run, back in a folder."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..errors import UsageError
from ..history.store import History
from ..paths import user_paths
from ..report import units
from ..runfiles.restore import proposed_place, restore_in_place, restore_new
from ..runs.lookup import refuse_outside
from . import render
from .completion import complete_run
from .options import debugging, in_project, maybe_project, the_project
from .project_id import link_restored


@click.command(epilog="Example: mlw project restore --run-id demo-swift")
@click.option("-r", "--run-id", "run", required=True, metavar="ID", shell_complete=complete_run, help="Run")
@click.option("--path", "place", metavar="NEW", help="New folder (default: next to the project)")
@click.option("--in-place", is_flag=True, help="Restore into the project folder; fails if files would be lost")
@in_project
@debugging
def restore(run: str, place: str | None, in_place: bool, folder: str | None) -> None:
    """Restore the code of a run.

    Writes the snapshot of the run into a new folder.
    """
    history = History(user_paths())
    found = history.get(run)
    refuse_outside(found, "its code was not saved", "'mlw submit SCRIPT' saves the code of a run")
    root = history.paths.root
    if in_place:
        if place:
            raise UsageError("--path cannot be combined with --in-place", "remove one of them")
        here = the_project(folder)
        if here.id != found.spec.project_id:
            raise UsageError(
                f"run {found.id} belongs to another project, {found.spec.project_name}", "remove --in-place"
            )
        plan = restore_in_place(root, found, here.root)
        replaced = units.counted(len(plan.replace), "file")
        render.message(
            f"restored {here.root} to run {found.id}: {replaced} replaced, {len(plan.create)} created, "
            f"{len(plan.remove)} removed"
        )
        return
    if place is None:
        project = maybe_project(folder)
        own = project is not None and project.id == found.spec.project_id
        beside = str(project.root) if project is not None and own else found.spec.project_path
        place = proposed_place(found, beside)
        if not os.path.isdir(os.path.dirname(place)):
            raise UsageError(f"folder {os.path.dirname(place)} no longer exists", "choose another folder with --path")
    count = restore_new(root, found, Path(place))
    link_restored(Path(place), found.spec.project_id, history)
    render.message(f"restored {units.counted(count, 'file')} of run {found.id} to {place}")
