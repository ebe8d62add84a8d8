"""``mlw asset …`` and ``mlw history promote``: outputs saved under a name and version."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..config.project_folder import Project, find_project
from ..errors import ConfigError, UsageError
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..report import units
from ..runfiles import assets as kept
from . import render
from .command_tree import LazyGroup
from .completion_types import complete_run
from .download import MAX_LISTED, check_default_folder, report_outcome, report_remaining
from .options import get_project_or_none, global_options, project_option, result_options
from .project_id import check_project
from .run_lookup import open_run

_COLUMNS = ("name", "version", "files", "size", "run_id", "artifact", "created (UTC)")


@click.group(cls=LazyGroup, epilog="Example: mlw asset download -l assets/moons.link -d models")
def asset() -> None:
    """List and download promoted outputs."""


@click.command(epilog="Example: mlw history promote -r demo-swift -ap model.pkl -n model")
@click.option("-r", "--run", metavar="ID", shell_complete=complete_run, help="Run (default: the newest)")
@click.option("-ap", "--artifact-path", "artifact", required=True, metavar="PATH", help="Output file or folder")
@click.option("-n", "--name", required=True, help="Name of the asset; promoting again creates the next version")
@project_option
@global_options
def promote(run: str | None, artifact: str, name: str, folder: str | None) -> None:
    """Save an output of a run as an asset.

    Writes assets/NAME.link into the project.
    """
    history = History(user_paths())
    selected = open_run(history, run, folder).refresh()
    project = _find_link_project(selected, folder)
    kept.check_link(project.root, name)
    with render.Progress("asset") as progress:
        asset, outcome = kept.promote(history.paths, selected, artifact, name, progress.update)
    for path, why in outcome.skipped[:MAX_LISTED]:
        render.warn(f"skipped: {path} ({why})")
    report_remaining(outcome.skipped.total)
    link = kept.write_link(project.root, asset)
    files = units.pluralize(asset.files, "file")
    render.message(f"asset {asset.name} version {asset.version}: {files}, {units.size(asset.size)}")
    render.message(f"hint: download it with 'mlw asset download -l {os.path.relpath(link)}'")


def _find_link_project(run: Run, folder: str | None) -> Project:
    """Return the project for the link file: the current one, or the one the run was submitted from."""
    current = get_project_or_none(folder)
    if current is not None and (folder or current.id == run.spec.project_id):
        return current
    try:
        origin = find_project(Path(run.spec.project_path))
    except ConfigError:
        origin = None
    if origin is None or origin.id != run.spec.project_id:
        raise UsageError(f"the project of run {run.id} is no longer at {run.spec.project_path}", "add --project PATH")
    return origin


@asset.command(epilog="Example: mlw asset download -l assets/model.link -d models")
@click.option("-l", "--link-file", "link", required=True, type=click.Path(), help="Link file, such as assets/NAME.link")
@click.option("-d", "--directory", metavar="DIR", help="Destination folder (default: a folder named after the asset)")
@click.option("--overwrite", is_flag=True, help="Replace existing files and links")
@global_options
def download(link: str, directory: str | None, overwrite: bool) -> int:
    """Copy the files of an asset to a folder."""
    name, version = kept.read_link(Path(link))
    paths = user_paths()
    try:
        project: Project | None = find_project(Path(os.path.abspath(link)).parent)
    except ConfigError:
        project = None
    if project is not None:
        check_project(project, History(paths))
    selected = kept.find_asset(paths, name, version, project.id if project else None)
    directory = directory or check_default_folder(selected.name, get_project_or_none(None))
    with render.Progress("asset", selected.size) as progress:
        outcome = kept.fetch_asset(paths, selected, directory, overwrite=overwrite, report=progress.update)
    return report_outcome(outcome, directory)


@asset.command("list", epilog="Example: mlw asset list -o json --query '[].name'")
@click.option("--all", "all_projects", is_flag=True, help="Include all projects")
@project_option
@result_options
def list_assets(all_projects: bool, folder: str | None, output: str, query: str | None) -> None:
    """List assets.

    The newest version of each asset comes first.
    """
    project = None if all_projects else get_project_or_none(folder)
    rows = [_row(item) for item in kept.list_assets(user_paths(), project.id if project else None)]
    if output == "table" and query is None:
        if not rows:
            render.message("no assets")
            return
        rows = [{**row, "size": units.size(row["size"]), "created (UTC)": row["created_utc"]} for row in rows]
    is_table = output == "table" and query is None
    render.emit(rows, output=output, query=query, columns=_COLUMNS if is_table else None)


def _row(asset: kept.Asset) -> dict[str, Any]:
    row = asdict(asset)
    row["created_utc"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(row.pop("created")))
    return row
