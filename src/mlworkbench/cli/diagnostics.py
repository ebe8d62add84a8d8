"""``mlw experiment diagnostics``: a zip with all that is needed to understand a run."""

from __future__ import annotations

import os
import sys

import click

from ..history.store import History
from ..paths import user_paths
from ..report import units
from ..report.plain import plain
from ..runfiles.diagnostics import Member, collect, refuse_there, secret_values, sharing_warnings, write_bundle
from ..runfiles.mask import Mask
from ..secret import known_values
from . import render
from .completion import complete_run
from .opening import open_run, refuse_outside
from .options import debugging, in_project

_SHOWN = 40


@click.command(epilog="Example: mlw experiment diagnostics -r demo-swift -o demo.zip")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "by_option", metavar="ID", shell_complete=complete_run, help="The same, as an option.")
@click.option("-t", "--target", expose_value=False, help="Not needed: a run knows its target.")
@click.option("-o", "--output", "path", metavar="FILE", help="The zip; diagnostics-RUN.zip here if not given.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@in_project
@debugging
def diagnostics(run: str | None, by_option: str | None, path: str | None, yes: bool, folder: str | None) -> None:
    """Bundle a run's code, log, events, spec and facts in a zip; values of secrets are masked."""
    history = History(user_paths())
    found = open_run(history, run or by_option, folder).refresh()
    refuse_outside(found, "there is no code and no log to bundle", f"see what it recorded: mlw show {found.id}")
    path = path or f"diagnostics-{found.id}.zip"
    refuse_there(path)
    known, unknown = known_values(found.spec.secrets)
    values = [os.fsencode(value) for value in (*known.values(), *secret_values(found))]
    members = collect(history.paths.root, found)
    _list(members)
    for warning in sharing_warnings(unknown):
        render.warn(warning)
    if not yes and render.terminal(sys.stdin) and render.terminal(sys.stderr):
        click.confirm(f"Write all this to {plain(path)}?", default=True, abort=True, err=True)
    total = sum(member.size for member in members)
    with render.Progress("diagnostics", total) as progress:
        size = write_bundle(path, members, lambda: Mask(values) if values else None, progress.update)
    render.message(f"wrote {path} ({units.size(size)}), readable by you only")


def _list(members: list[Member]) -> None:
    """The content before it is written: what is large or private is seen in time."""
    total = sum(member.size for member in members)
    render.message(f"the bundle holds {len(members)} files, {units.size(total)}:")
    for member in members[:_SHOWN]:
        render.message(f"  {units.size(member.size):>8}  {member.name}")
    if len(members) > _SHOWN:
        rest = members[_SHOWN:]
        render.message(f"  {units.size(sum(member.size for member in rest)):>8}  {len(rest)} more files of the project")
