"""``mlw experiment diagnostics``: bundle a run into a zip file for a bug report."""

from __future__ import annotations

import os
import sys

import click

from ..history.store import History
from ..paths import user_paths
from ..report import units
from ..runfiles.diagnostics_bundle import Member, collect, require_absent, secret_values, sharing_warnings, write_bundle
from ..runfiles.secret_masking import Mask
from ..runs.open_run import refuse_untracked
from ..sanitize import plain
from ..secret_sources import known_values
from . import render
from .completion_types import complete_run
from .options import global_options, project_option
from .output_option import output_options
from .run_lookup import open_run

_MAX_LISTED = 40


@click.command(epilog="Example: mlw experiment diagnostics demo-swift --to demo.zip")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "run_option", metavar="ID", shell_complete=complete_run, help="Same as the argument RUN")
@click.option("-t", "--target", expose_value=False, help="Ignored; the run determines the target")
@output_options(
    render.FORMATS,
    format_help="Format of the summary",
    file_help="Zip file to write (default: diagnostics-RUN.zip)",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation")
@project_option
@global_options
def diagnostics(run: str | None, run_option: str | None, yes: bool, folder: str | None, **options: str | None) -> None:
    """Bundle a run for a bug report.

    The zip file contains the code, log, events, specification, and machine facts of the run. Secrets are masked.
    """
    history = History(user_paths())
    selected = open_run(history, run or run_option, folder).refresh()
    refuse_untracked(
        selected, "there is no code and no log to bundle", f"see the recorded data with 'mlw show {selected.id}'"
    )
    path = options["path"] or f"diagnostics-{selected.id}.zip"
    require_absent(path)
    available, missing = known_values(selected.spec.secrets)
    values = [os.fsencode(value) for value in (*available.values(), *secret_values(selected))]
    members = collect(history.paths.root, selected)
    _list_members(members)
    for warning in sharing_warnings(missing):
        render.warn(warning)
    if not yes and render.is_terminal(sys.stdin) and render.is_terminal(sys.stderr):
        click.confirm(f"Write these files to {plain(path)}?", default=True, abort=True, err=True)
    total = sum(member.size for member in members)
    with render.Progress("diagnostics", total) as progress:
        size = write_bundle(path, members, lambda: Mask(values) if values else None, progress.update)
    render.message(f"wrote {path} ({units.size(size)}), readable by you only")
    if options["kind"] not in (None, "table"):
        files = [{"name": member.name, "bytes": member.size} for member in members]
        render.emit({"path": path, "bytes": size, "files": files}, output=str(options["kind"]))


def _list_members(members: list[Member]) -> None:
    """Print the list of files in the bundle, so that the user notices large or private files."""
    total = sum(member.size for member in members)
    render.message(f"the bundle contains {len(members)} files, {units.size(total)}:")
    for member in members[:_MAX_LISTED]:
        render.message(f"  {units.size(member.size):>8}  {member.name}")
    if len(members) > _MAX_LISTED:
        rest = members[_MAX_LISTED:]
        render.message(f"  {units.size(sum(member.size for member in rest)):>8}  {len(rest)} more project files")
