"""``mlw experiment clean``: what can go from our folder, on this machine or on a target."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..config.keys import is_elsewhere
from ..errors import UsageError
from ..history.store import History
from ..model import Compute, Run
from ..paths import UserPaths, user_paths
from ..report import units
from ..runfiles.clean import Cleaner, check_ours
from ..runfiles.clean_kinds import KINDS, UNUSED, Find, Kept
from . import render
from .completion import complete_target
from .options import in_project, rendering, the_project

if TYPE_CHECKING:
    from ..runfiles.clean_elsewhere import Kept as KeptThere

_NAMED = 3  # runs
_UNFETCHED = "Also ended runs whose results are not all here."
_RECENT = "Also what a submit may still need; use it while nothing is submitted."


@click.command(epilog="Example: mlw experiment clean --yes")
@click.option("-t", "--target", shell_complete=complete_target, help="On this target instead of this machine.")
@click.option("--unfetched", is_flag=True, help=f"{_UNFETCHED} With -t only.")
@click.option("--recent", is_flag=True, help=_RECENT)
@click.option("--dry-run", is_flag=True, help="Only show (default).")
@click.option("-y", "--yes", is_flag=True, help="Remove it.")
@in_project
@rendering
def clean(target: str | None, folder: str | None, output: str, query: str | None, **asked: Any) -> None:
    """Show what can go, with its bytes, and remove it with --yes.

    On this machine runs, outputs and assets always stay. On a target, runs go that have ended and whose log and
    outputs have been brought here. Unfinished uploads and builds go at once. Environments go that no run has used for
    30 days; for others, and for the packages that they were built from, there is mlw environment remove. What stays is
    listed with its reason.
    """
    paths = user_paths()
    check_ours(str(paths.home), str(paths.database))
    compute = the_project(folder).compute(target) if target else None
    wish = _Asked(asked["yes"] and not asked["dry_run"], asked["unfetched"], asked["recent"])
    if compute is not None and is_elsewhere(compute.kind, compute.address):
        _clean_there(compute, paths, wish, output, query)
        return
    if wish.unfetched:
        raise UsageError(
            "--unfetched is for a target: on this machine runs always stay",
            "leave it out" if target else "name it with -t",
        )
    _clean_here(paths, wish, output, query)


@dataclass(frozen=True)
class _Asked:
    remove: bool
    unfetched: bool
    recent: bool

    def command(self, target: str | None) -> str:
        """The command that removes what this one shows."""
        where = f" -t {shlex.quote(target)}" if target else ""
        flags = (" --unfetched" if self.unfetched else "") + (" --recent" if self.recent else "")
        return f"mlw experiment clean{where}{flags} --yes"


def _clean_here(paths: UserPaths, asked: _Asked, output: str, query: str | None) -> None:
    cleaner = Cleaner(History(paths), recent=asked.recent)
    found = cleaner.find()
    done = cleaner.remove(found) if asked.remove else None
    kept = cleaner.kept()
    _emit(_rows(found if done is None else done, kept), output, query)
    for note in cleaner.notes:
        render.warn(note)
    total = units.size(sum(one.size for one in (found if done is None else done)))
    if done is None:
        render.message(f"{total} can go" + (f"; remove it with: {asked.command(None)}" if found else ""))
    else:
        render.message(f"{total} removed from {paths.home}")
    for one in kept:
        _tell_kept(one.kind.removesuffix(UNUSED), one.things, one.size, one.why)


def _tell_kept(kind: str, things: int, size: int, why: str, names: tuple[str, ...] = ()) -> None:
    more = f", and {things - _NAMED:,} more" if things > _NAMED else ""
    named = f" ({', '.join(names[:_NAMED])}{more})" if names else ""
    render.message(f"kept: {kind}, {things:,} with {units.size(size)}{named}: {why}")


def _clean_there(compute: Compute, paths: UserPaths, asked: _Asked, output: str, query: str | None) -> None:
    from ..runfiles.clean_elsewhere import KINDS as NAMES  # noqa: PLC0415 - most cleans are of this machine
    from ..runfiles.clean_elsewhere import CleanerElsewhere, Part  # noqa: PLC0415
    from ..targets.opening import open_target  # noqa: PLC0415
    from ..targets.remote import find_attachment  # noqa: PLC0415

    host = open_target(compute, paths).host
    attachment = host.attachment

    def is_there(run: Run) -> bool:
        found = find_attachment(run.spec.compute, paths)
        return found is not None and attachment is not None and found.folder == attachment.folder

    def row(one: Part) -> dict[str, Any]:
        shown = {"kind": NAMES[one.kind], "things": one.things, "bytes": one.size}
        free = {} if asked.remove else {"can_go": one.free_things, "can_go_bytes": one.free_size}
        return {**shown, **free, "kept": [_kept_row(kept, compute) for kept in one.kept]}

    cleaner = CleanerElsewhere(History(paths), host, is_there, unfetched=asked.unfetched, recent=asked.recent)
    where = f"{compute.name}, {host.identity}"
    found, problems = cleaner.remove() if asked.remove else (cleaner.find(), [])
    _emit([row(one) for one in found], output, query)
    for problem in problems:
        render.warn(f"could not be removed: {problem}")
    total = sum(one.free_size for one in found)
    if asked.remove:
        render.message(f"{units.size(total)} removed from {where}")
    else:
        how = f"; remove it with: {asked.command(compute.name)}" if total else ""
        render.message(f"{units.size(total)} can go from {where}{how}")
    for part in found:
        for kept in part.kept:
            _tell_kept(NAMES[part.kind], kept.things, kept.size, _why(kept.why, compute), kept.names)


def _kept_row(kept: KeptThere, compute: Compute) -> dict[str, Any]:
    row = {"things": kept.things, "bytes": kept.size, "reason": _why(kept.why, compute)}
    return {**row, "runs": list(kept.names)} if kept.names else row


def _why(word: str, compute: Compute) -> str:
    from ..runfiles.clean_elsewhere import WHY  # noqa: PLC0415 - as above

    return WHY[word].format(t=compute.name, clean=f"mlw experiment clean -t {compute.name} --yes")


def _emit(rows: list[dict[str, Any]], output: str, query: str | None) -> None:
    tidy = output == "table" and query is None
    names = [name for name in rows[0] if name != "kept"]  # of which a table tells below
    shown = [{key: units.size(row[key]) if key.endswith("bytes") else row[key] for key in names} for row in rows]
    render.emit(shown if tidy else rows, output=output, query=query)


def _rows(found: list[Find], kept: list[Kept]) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind,
            "things": sum(one.kind == kind for one in found),
            "bytes": sum(one.size for one in found if one.kind == kind),
            "kept": [{"things": one.things, "bytes": one.size, "reason": one.why} for one in kept if one.kind == kind],
        }
        for kind in KINDS
    ]
