"""``mlw asset …`` and ``mlw history promote``: outputs that were given a name and a version."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..config.project import Project, find_project
from ..errors import ConfigError, UsageError
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..report import units
from ..runfiles import asset as kept
from . import render
from .completion import complete_run
from .download import SHOWN, tell, tell_more, unasked
from .opening import open_run
from .options import debugging, in_project, maybe_project, rendering
from .project_id import check_project
from .verbs import Verbs

_COLUMNS = ("name", "version", "files", "size", "run_id", "artifact", "created (UTC)")


@click.group(cls=Verbs, epilog="Example: mlw asset download -l assets/moons.link -d models")
def asset() -> None:
    """List and download promoted outputs."""


@click.command(epilog="Example: mlw history promote -r demo-swift -ap model.pkl -n model")
@click.option("-r", "--run", metavar="ID", shell_complete=complete_run, help="Run (default: the newest)")
@click.option("-ap", "--artifact-path", "artifact", required=True, metavar="PATH", help="Output file or folder")
@click.option("-n", "--name", required=True, help="Name of the asset; promoting again creates the next version")
@in_project
@debugging
def promote(run: str | None, artifact: str, name: str, folder: str | None) -> None:
    """Save an output of a run as an asset.

    Writes assets/NAME.link into the project.
    """
    history = History(user_paths())
    found = open_run(history, run, folder).refresh()
    project = _project_of(found, folder)
    kept.check_link(project.root, name)
    with render.Progress("asset") as progress:
        made, outcome = kept.promote(history.paths, found, artifact, name, progress.update)
    for path, why in outcome.skipped[:SHOWN]:
        render.warn(f"skipped: {path} ({why})")
    tell_more(outcome.skipped.total)
    link = kept.write_link(project.root, made)
    files = units.counted(made.files, "file")
    render.message(f"asset {made.name} version {made.version}: {files}, {units.size(made.size)}")
    render.message(f"hint: download it with 'mlw asset download -l {os.path.relpath(link)}'")


def _project_of(run: Run, folder: str | None) -> Project:
    """The project that the link file goes to: the one here, else the one the run came from."""
    here = maybe_project(folder)
    if here is not None and (folder or here.id == run.spec.project_id):
        return here
    try:
        there = find_project(Path(run.spec.project_path))
    except ConfigError:
        there = None
    if there is None or there.id != run.spec.project_id:
        raise UsageError(f"the project of run {run.id} is no longer at {run.spec.project_path}", "add --project PATH")
    return there


@asset.command(epilog="Example: mlw asset download -l assets/model.link -d models")
@click.option("-l", "--link-file", "link", required=True, type=click.Path(), help="Link file, such as assets/NAME.link")
@click.option(
    "-d", "--directory", "place", metavar="DIR", help="Destination folder (default: a folder named after the asset)"
)
@click.option("--overwrite", is_flag=True, help="Replace existing files and links")
@debugging
def download(link: str, place: str | None, overwrite: bool) -> int:
    """Copy the files of an asset to a folder."""
    name, version = kept.read_link(Path(link))
    paths = user_paths()
    try:
        project: Project | None = find_project(Path(os.path.abspath(link)).parent)
    except ConfigError:
        project = None
    if project is not None:
        check_project(project, History(paths))
    found = kept.find_asset(paths, name, version, project.id if project else None)
    place = place or unasked(found.name, maybe_project(None))
    with render.Progress("asset", found.size) as progress:
        outcome = kept.fetch_asset(paths, found, place, overwrite=overwrite, report=progress.update)
    return tell(outcome, place)


@asset.command("list", epilog="Example: mlw asset list -o json --query '[].name'")
@click.option("--all", "everywhere", is_flag=True, help="Include all projects")
@in_project
@rendering
def list_assets(everywhere: bool, folder: str | None, output: str, query: str | None) -> None:
    """List assets.

    The newest version of each asset comes first.
    """
    project = None if everywhere else maybe_project(folder)
    rows = [_row(one) for one in kept.assets(user_paths(), project.id if project else None)]
    if output == "table" and query is None:
        if not rows:
            render.message("no assets")
            return
        rows = [{**row, "size": units.size(row["size"]), "created (UTC)": row["created_utc"]} for row in rows]
    tidy = output == "table" and query is None
    render.emit(rows, output=output, query=query, columns=_COLUMNS if tidy else None)


def _row(one: kept.Asset) -> dict[str, Any]:
    row = asdict(one)
    row["created_utc"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(row.pop("created")))
    return row
