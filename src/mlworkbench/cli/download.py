"""``mlw history download``: copy the outputs of a run to a folder."""

from __future__ import annotations

import os

import click

from ..config.project_files import is_outside
from ..config.project_folder import Project
from ..errors import UsageError
from ..follow import Follower
from ..history.store import History
from ..paths import user_paths
from ..runfiles.output_download import covers, normalize_name
from ..runfiles.output_download import download as fetch
from ..runfiles.verified_copy import Outcome
from ..runs.result_download import download_selected_outputs
from . import render
from .completion_types import complete_run
from .options import get_project_or_none, global_options, project_option
from .run_lookup import open_run
from .submission_console import Console

MAX_LISTED = 10


@click.command(epilog="Example: mlw history download -r demo-swift -d results --artifact model.pkl")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "run_option", metavar="ID", shell_complete=complete_run, help="Same as the argument RUN")
@click.option("-d", "--directory", metavar="DIR", help="Destination folder (default: outputs/RUN in the project)")
@click.option("--artifact", "artifacts", multiple=True, metavar="PATH", help="File or folder to copy (repeatable)")
@click.option("--checkpoints", is_flag=True, help="Copy the checkpoints instead of the outputs")
@click.option("--overwrite", is_flag=True, help="Replace existing files and links")
@project_option
@global_options
def download(
    run: str | None,
    run_option: str | None,
    directory: str | None,
    artifacts: tuple[str, ...],
    checkpoints: bool,
    overwrite: bool,
    folder: str | None,
) -> int:
    """Copy the outputs of a run to a folder.

    Verifies the digest of each file. An interrupted download continues when you repeat the command. Exits with 1 if
    some files could not be copied.
    """
    history = History(user_paths())
    follower = open_run(history, run or run_option, folder)
    selected = follower.refresh()
    names = [normalize_name(artifact) for artifact in artifacts]
    if checkpoints:
        return _download_checkpoints(follower, directory or _default_folder(selected.id, folder), names, overwrite)
    download_selected_outputs(follower, Console(), lambda entry: _is_selected(entry.path, names))
    if selected.outputs == 0 and not selected.uncollected and not artifacts:
        render.message(f"run {selected.id} has no outputs")
        return 0
    directory = directory or _default_folder(selected.id, folder)
    with render.Progress("outputs", None if artifacts else selected.output_bytes) as progress:
        outcome, recorded = fetch(
            history.paths.root.run(selected.id), directory, artifacts, overwrite=overwrite, report=progress.update
        )
    if not recorded:
        render.warn("the run has not finished: copying the current files")
    return report_outcome(outcome, directory)


def _download_checkpoints(follower: Follower, directory: str, names: list[str], overwrite: bool) -> int:
    from ..runs.checkpoint_download import download_checkpoints  # noqa: PLC0415 - seldom needed

    outcome = download_checkpoints(follower, Console(), directory, names, overwrite=overwrite)
    if outcome is None:
        render.message(f"run {follower.run.id} has no checkpoints")
        return 0
    return report_outcome(outcome, directory)


def _is_selected(path: str, names: list[str]) -> bool:
    return not names or any(covers(name, path) for name in names)


def _default_folder(run: str, folder: str | None) -> str:
    """Return the default folder, below ``outputs/``, which is never part of a snapshot."""
    project = get_project_or_none(folder)
    return run if project is None else check_default_folder(os.path.relpath(project.root / "outputs" / run), project)


def check_default_folder(directory: str, project: Project | None) -> str:
    """Return the default folder. Raise if a symlink in the project redirects it elsewhere."""
    if project is not None and is_outside(directory, project.root):
        raise UsageError(f"{directory} is a link to a folder outside the project", f"to use it, add '-d {directory}'")
    return directory


def report_outcome(outcome: Outcome, directory: str) -> int:
    """Print the outcome for the files. Return 1 if some were not copied."""
    for path, reason in outcome.skipped[:MAX_LISTED]:
        render.message(f"not copied: {path} ({reason})")
    report_remaining(outcome.skipped.total)
    for path, reason in outcome.failed[:MAX_LISTED]:
        render.warn(f"{path}: {reason}")
    report_remaining(outcome.failed.total)
    for path in outcome.exists[:MAX_LISTED]:
        render.warn(f"{os.path.join(directory, path)} exists with different content; not replaced")
    report_remaining(outcome.exists.total)
    parts = [f"copied to {directory}: {_counted(outcome.copied, 'file')}"]
    if outcome.links:
        parts.append(_counted(outcome.links, "link"))
    if outcome.same:
        parts.append(f"{outcome.same} unchanged")
    render.message(", ".join(parts))
    if outcome.exists:
        render.message("hint: replace existing files with --overwrite")
    return 0 if outcome.is_complete else 1


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def report_remaining(total: int) -> None:
    if total > MAX_LISTED:
        render.message(f"and {total - MAX_LISTED} more")
