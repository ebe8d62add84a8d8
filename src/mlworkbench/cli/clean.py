"""``mlw experiment clean``: what can go from our folder, on this machine or on a target."""

from __future__ import annotations

from typing import Any

import click

from ..config.keys import is_elsewhere
from ..history.store import History
from ..model import Compute, Run
from ..paths import UserPaths, user_paths
from ..remote.environments.stock import notes
from ..report import units
from ..runfiles.clean import KINDS, Cleaner, Find, check_ours
from . import render
from .completion import complete_target
from .options import in_project, rendering, the_project

_STAY = "hint: environments of the last 30 days stay; see them with: mlw environment list{}"


@click.command(epilog="Example: mlw experiment clean --yes")
@click.option("-t", "--target", shell_complete=complete_target, help="On this target instead of this machine.")
@click.option("--dry-run", is_flag=True, help="Only show (default).")
@click.option("-y", "--yes", is_flag=True, help="Remove it.")
@in_project
@rendering
def clean(target: str | None, dry_run: bool, yes: bool, folder: str | None, output: str, query: str | None) -> None:
    """Show what can go, with its bytes, and remove it with --yes.

    On this machine runs, outputs and assets always stay. On a target, runs go that have ended and whose log and
    outputs have been brought here. Environments go that no run has used for 30 days; for others, and for the packages
    that they were built from, there is mlw environment remove.
    """
    paths = user_paths()
    check_ours(str(paths.home), str(paths.database))
    compute = the_project(folder).compute(target) if target else None
    remove = yes and not dry_run
    if compute is not None and is_elsewhere(compute.kind, compute.address):
        _clean_there(compute, paths, remove, output, query)
    else:
        _clean_here(paths, remove, output, query)


def _clean_here(paths: UserPaths, remove: bool, output: str, query: str | None) -> None:
    cleaner = Cleaner(History(paths))
    found = cleaner.find()
    done = cleaner.remove(found) if remove else None
    _emit(_rows(found if done is None else done), output, query)
    for note in cleaner.notes:
        render.warn(note)
    total = units.size(sum(one.size for one in (found if done is None else done)))
    if done is None:
        render.message(f"{total} can go" + ("; remove it with: mlw experiment clean --yes" if found else ""))
    else:
        render.message(f"{total} removed from {paths.home}")
    if notes(paths.root):
        render.message(_STAY.format(""))


def _clean_there(compute: Compute, paths: UserPaths, remove: bool, output: str, query: str | None) -> None:
    from ..runfiles.clean_elsewhere import KINDS as NAMES  # noqa: PLC0415 - most cleans are of this machine
    from ..runfiles.clean_elsewhere import CleanerElsewhere  # noqa: PLC0415
    from ..targets.opening import open_target  # noqa: PLC0415
    from ..targets.remote import find_attachment  # noqa: PLC0415

    host = open_target(compute, paths).host
    attachment = host.attachment

    def is_there(run: Run) -> bool:
        found = find_attachment(run.spec.compute, paths)
        return found is not None and attachment is not None and found.folder == attachment.folder

    cleaner = CleanerElsewhere(History(paths), host, is_there)
    if remove:
        gone, problems = cleaner.remove()
        _emit([{"kind": NAMES[one.kind], "things": one.things, "bytes": one.size} for one in gone], output, query)
        for problem in problems:
            render.warn(f"could not be removed: {problem}")
        render.message(f"{units.size(sum(one.size for one in gone))} removed from {compute.name}, {host.identity}")
        return
    found = cleaner.find()
    rows = [
        {
            "kind": NAMES[one.kind],
            "things": one.things,
            "bytes": one.size,
            "can_go": one.free_things,
            "can_go_bytes": one.free_size,
        }
        for one in found
    ]
    _emit(rows, output, query)
    total = sum(one.free_size for one in found)
    how = f"; remove it with: mlw experiment clean -t {compute.name} --yes" if total else ""
    render.message(f"{units.size(total)} can go from {compute.name}, {host.identity}{how}")
    if any(one.kind == "envs" and one.things > one.free_things for one in found):
        render.message(_STAY.format(f" -t {compute.name}"))


def _emit(rows: list[dict[str, Any]], output: str, query: str | None) -> None:
    tidy = output == "table" and query is None
    shown = [{key: units.size(row[key]) if key.endswith("bytes") else row[key] for key in row} for row in rows]
    render.emit(shown if tidy else rows, output=output, query=query)


def _rows(found: list[Find]) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind,
            "things": sum(one.kind == kind for one in found),
            "bytes": sum(one.size for one in found if one.kind == kind),
        }
        for kind in KINDS
    ]
