"""``mlw experiment clean``: what can go from our folder, on this machine or on a target."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..history.store import History
from ..model import Compute, Run
from ..paths import UserPaths, user_paths
from ..report import units
from ..runfiles.clean import Cleaner, check_ours
from ..runfiles.clean_kinds import KINDS, UNUSED, Find, Kept
from ..targets.types import is_elsewhere
from . import render
from .completion import complete_target
from .options import in_project, rendering, the_project

if TYPE_CHECKING:
    from ..runfiles.clean_elsewhere import Kept as KeptThere

_NAMED = 3  # runs
_HEADINGS = {"things": "count", "bytes": "size", "can_go": "deletable", "can_go_bytes": "deletable size"}
_UNFETCHED = "Also delete finished runs whose results were not fetched"
_RECENT = "Also delete files that a submission may still need; use only when no submission is in progress"


@click.command(epilog="Example: mlw experiment clean --yes")
@click.option("-t", "--target", shell_complete=complete_target, help="Compute target (default: this machine)")
@click.option("--unfetched", is_flag=True, help=f"{_UNFETCHED}; requires -t")
@click.option("--recent", is_flag=True, help=_RECENT)
@click.option("--dry-run", is_flag=True, help="Only list files (default)")
@click.option("-y", "--yes", is_flag=True, help="Delete the files")
@in_project
@rendering
def clean(target: str | None, folder: str | None, output: str, query: str | None, **asked: Any) -> None:
    """List files that can be deleted, and delete them.

    Deletes only with --yes. On this machine, runs, outputs, and assets are always kept. On a target, finished runs are
    deleted once their logs and outputs have been fetched. It also deletes unfinished uploads and builds immediately,
    and environments that no run has used for 30 days. To delete other environments and cached packages, use mlw
    environment remove. The list shows what is kept and why.
    """
    paths = user_paths()
    check_ours(str(paths.home), str(paths.database))
    compute = the_project(folder).compute(target) if target else None
    wish = _Asked(asked["yes"] and not asked["dry_run"], asked["unfetched"], asked["recent"])
    if compute is not None and is_elsewhere(compute):
        _clean_there(compute, paths, wish, output, query)
        return
    if wish.unfetched:
        raise UsageError(
            "--unfetched requires a remote target; on this machine runs are always kept",
            "remove --unfetched" if target else "add -t NAME",
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
        render.message(f"{total} can be deleted" + (f"; delete with: {asked.command(None)}" if found else ""))
    else:
        render.message(f"deleted {total} from {paths.home}")
    for one in kept:
        _tell_kept(one.kind.removesuffix(UNUSED), one.things, one.size, one.why)


def _tell_kept(kind: str, things: int, size: int, why: str, names: tuple[str, ...] = ()) -> None:
    more = f", and {things - _NAMED:,} more" if things > _NAMED else ""
    named = f" ({', '.join(names[:_NAMED])}{more})" if names else ""
    render.message(f"kept: {kind}, {things:,} ({units.size(size)}){named}: {why}")


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
        render.warn(f"could not delete {problem}")
    total = sum(one.free_size for one in found)
    if asked.remove:
        render.message(f"deleted {units.size(total)} from {where}")
    else:
        how = f"; delete with: {asked.command(compute.name)}" if total else ""
        render.message(f"{units.size(total)} can be deleted from {where}{how}")
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
    shown = [
        {_HEADINGS.get(key, key): units.size(row[key]) if key.endswith("bytes") else row[key] for key in names}
        for row in rows
    ]
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
