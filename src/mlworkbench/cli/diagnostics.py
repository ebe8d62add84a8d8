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
from ..runs.lookup import refuse_outside
from ..secret import known_values
from . import render
from .completion import complete_run
from .opening import open_run
from .options import debugging, in_project
from .output_option import output_options

_SHOWN = 40


@click.command(epilog="Example: mlw experiment diagnostics demo-swift --to demo.zip")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "by_option", metavar="ID", shell_complete=complete_run, help="Same as the argument RUN")
@click.option("-t", "--target", expose_value=False, help="Ignored; the run determines the target")
@output_options(
    render.FORMATS,
    format_help="Format of the summary",
    file_help="Zip file to write (default: diagnostics-RUN.zip)",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation")
@in_project
@debugging
def diagnostics(run: str | None, by_option: str | None, yes: bool, folder: str | None, **asked: str | None) -> None:
    """Bundle a run for a bug report.

    The zip file contains the code, log, events, specification, and machine facts of the run. Secrets are masked.
    """
    history = History(user_paths())
    found = open_run(history, run or by_option, folder).refresh()
    refuse_outside(found, "there is no code and no log to bundle", f"see the recorded data with 'mlw show {found.id}'")
    path = asked["path"] or f"diagnostics-{found.id}.zip"
    refuse_there(path)
    known, unknown = known_values(found.spec.secrets)
    values = [os.fsencode(value) for value in (*known.values(), *secret_values(found))]
    members = collect(history.paths.root, found)
    _list(members)
    for warning in sharing_warnings(unknown):
        render.warn(warning)
    if not yes and render.terminal(sys.stdin) and render.terminal(sys.stderr):
        click.confirm(f"Write these files to {plain(path)}?", default=True, abort=True, err=True)
    total = sum(member.size for member in members)
    with render.Progress("diagnostics", total) as progress:
        size = write_bundle(path, members, lambda: Mask(values) if values else None, progress.update)
    render.message(f"wrote {path} ({units.size(size)}), readable by you only")
    if asked["kind"] not in (None, "table"):
        files = [{"name": member.name, "bytes": member.size} for member in members]
        render.emit({"path": path, "bytes": size, "files": files}, output=str(asked["kind"]))


def _list(members: list[Member]) -> None:
    """The content before it is written: what is large or private is seen in time."""
    total = sum(member.size for member in members)
    render.message(f"the bundle contains {len(members)} files, {units.size(total)}:")
    for member in members[:_SHOWN]:
        render.message(f"  {units.size(member.size):>8}  {member.name}")
    if len(members) > _SHOWN:
        rest = members[_SHOWN:]
        render.message(f"  {units.size(sum(member.size for member in rest)):>8}  {len(rest)} more project files")
