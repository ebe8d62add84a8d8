"""``mlw history download``: the outputs of a run, in a folder."""

from __future__ import annotations

import os

import click

from ..config.place import leads_out
from ..config.project import Project
from ..errors import UsageError
from ..history.store import History
from ..paths import user_paths
from ..runfiles.download import covers, plain_name
from ..runfiles.download import download as fetch
from ..runfiles.transfer import Outcome
from ..runs.results import bring_home
from . import render
from .completion import complete_run
from .console import Console
from .opening import open_run
from .options import debugging, in_project, maybe_project

SHOWN = 10


@click.command(epilog="Example: mlw history download -r demo-swift -d results --artifact model.pkl")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-r", "--run", "by_option", metavar="ID", shell_complete=complete_run, help="Same as the argument RUN")
@click.option(
    "-d", "--directory", "place", metavar="DIR", help="Destination folder (default: outputs/RUN in the project)"
)
@click.option("--artifact", "artifacts", multiple=True, metavar="PATH", help="File or folder to copy (repeatable)")
@click.option("--overwrite", is_flag=True, help="Replace existing files and links")
@in_project
@debugging
def download(
    run: str | None,
    by_option: str | None,
    place: str | None,
    artifacts: tuple[str, ...],
    overwrite: bool,
    folder: str | None,
) -> int:
    """Copy the outputs of a run to a folder.

    Verifies the digest of each file. An interrupted download continues when you repeat the command. Exits with 1 if
    some files could not be copied.
    """
    history = History(user_paths())
    follower = open_run(history, run or by_option, folder)
    found = follower.refresh()
    names = [plain_name(artifact) for artifact in artifacts]
    bring_home(follower, Console(), lambda one: _is_wanted(one.path, names))
    if found.outputs == 0 and not found.uncollected and not artifacts:
        render.message(f"run {found.id} has no outputs")
        return 0
    place = place or _default(found.id, folder)
    with render.Progress("outputs", None if artifacts else found.output_bytes) as progress:
        outcome, recorded = fetch(
            history.paths.root.run(found.id), place, artifacts, overwrite=overwrite, report=progress.update
        )
    if not recorded:
        render.warn("the run has not finished: copying the current files")
    return tell(outcome, place)


def _is_wanted(path: str, names: list[str]) -> bool:
    return not names or any(covers(name, path) for name in names)


def _default(run: str, folder: str | None) -> str:
    """Not among the project's files, which would travel with the next run: ``outputs/`` never does."""
    project = maybe_project(folder)
    return run if project is None else unasked(os.path.relpath(project.root / "outputs" / run), project)


def unasked(place: str, project: Project | None) -> str:
    """A place that the user has not named: a link of the project must not choose another one."""
    if project is not None and leads_out(place, project.root):
        raise UsageError(f"{place} is a link to a folder outside the project", f"to use it, add '-d {place}'")
    return place


def tell(outcome: Outcome, place: str) -> int:
    """What became of the files; 1 if not all came."""
    for path, why in outcome.skipped[:SHOWN]:
        render.message(f"not copied: {path} ({why})")
    tell_more(outcome.skipped.total)
    for path, why in outcome.failed[:SHOWN]:
        render.warn(f"{path}: {why}")
    tell_more(outcome.failed.total)
    for path in outcome.exists[:SHOWN]:
        render.warn(f"{os.path.join(place, path)} exists with different content; not replaced")
    tell_more(outcome.exists.total)
    words = [f"copied to {place}: {_count(outcome.copied, 'file')}"]
    if outcome.links:
        words.append(_count(outcome.links, "link"))
    if outcome.same:
        words.append(f"{outcome.same} unchanged")
    render.message(", ".join(words))
    if outcome.exists:
        render.message("hint: replace existing files with --overwrite")
    return 0 if outcome.whole else 1


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def tell_more(total: int) -> None:
    if total > SHOWN:
        render.message(f"and {total - SHOWN} more")
