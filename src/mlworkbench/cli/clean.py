"""``mlw experiment clean``: delete files that are no longer needed, on this machine or on a target."""

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
from ..runfiles.clean_kinds import KINDS, UNUSED, Kept, Removable
from ..runfiles.clean_local import LocalCleaner, require_data_folder
from ..targets.types import is_elsewhere
from . import render
from .completion_types import complete_target
from .options import get_project, project_option, result_options

if TYPE_CHECKING:
    from ..runfiles.clean_remote import Kept as KeptThere

_MAX_NAMED = 3  # maximum runs named in a message
_HEADINGS = {"things": "count", "bytes": "size", "can_go": "deletable", "can_go_bytes": "deletable size"}
_UNFETCHED_HELP = "Also delete finished runs whose results were not fetched"
_RECENT_HELP = "Also delete files that a submission may still need; use only when no submission is in progress"


@click.command(epilog="Example: mlw experiment clean --yes")
@click.option("-t", "--target", shell_complete=complete_target, help="Compute target (default: this machine)")
@click.option("--unfetched", is_flag=True, help=f"{_UNFETCHED_HELP}; requires -t")
@click.option("--recent", is_flag=True, help=_RECENT_HELP)
@click.option("--dry-run", is_flag=True, help="Only list files (default)")
@click.option("-y", "--yes", is_flag=True, help="Delete the files")
@project_option
@result_options
def clean(target: str | None, folder: str | None, output: str, query: str | None, **arguments: Any) -> None:
    """List files that can be deleted, and delete them.

    Deletes only with --yes. On this machine, runs, outputs, and assets are always kept. On a target, finished runs are
    deleted once their logs and outputs have been fetched. It also deletes unfinished uploads and builds immediately,
    and environments that no run has used for 30 days. To delete other environments and cached packages, use mlw
    environment remove. The list shows what is kept and why.
    """
    paths = user_paths()
    require_data_folder(str(paths.home), str(paths.database))
    compute = get_project(folder).compute(target) if target else None
    options = _CleanOptions(arguments["yes"] and not arguments["dry_run"], arguments["unfetched"], arguments["recent"])
    if compute is not None and is_elsewhere(compute):
        _clean_remote(compute, paths, options, output, query)
        return
    if options.unfetched:
        raise UsageError(
            "--unfetched requires a remote target; on this machine runs are always kept",
            "remove --unfetched" if target else "add -t NAME",
        )
    _clean_local(paths, options, output, query)


@dataclass(frozen=True)
class _CleanOptions:
    remove: bool
    unfetched: bool
    recent: bool

    def command(self, target: str | None) -> str:
        """Return the command that deletes the listed files."""
        where = f" -t {shlex.quote(target)}" if target else ""
        flags = (" --unfetched" if self.unfetched else "") + (" --recent" if self.recent else "")
        return f"mlw experiment clean{where}{flags} --yes"


def _clean_local(paths: UserPaths, options: _CleanOptions, output: str, query: str | None) -> None:
    cleaner = LocalCleaner(History(paths), recent=options.recent)
    finds = cleaner.find()
    removed = cleaner.remove(finds) if options.remove else None
    kept = cleaner.kept()
    _emit(_local_rows(finds if removed is None else removed, kept), output, query)
    for note in cleaner.notes:
        render.warn(note)
    total = units.size(sum(find.size for find in (finds if removed is None else removed)))
    if removed is None:
        render.message(f"{total} can be deleted" + (f"; delete with: {options.command(None)}" if finds else ""))
    else:
        render.message(f"deleted {total} from {paths.home}")
    for item in kept:
        _print_kept(item.kind.removesuffix(UNUSED), item.things, item.size, item.why)


def _print_kept(kind: str, count: int, size: int, reason: str, names: tuple[str, ...] = ()) -> None:
    remaining = f", and {count - _MAX_NAMED:,} more" if count > _MAX_NAMED else ""
    listed = f" ({', '.join(names[:_MAX_NAMED])}{remaining})" if names else ""
    render.message(f"kept: {kind}, {count:,} ({units.size(size)}){listed}: {reason}")


def _clean_remote(compute: Compute, paths: UserPaths, options: _CleanOptions, output: str, query: str | None) -> None:
    from ..runfiles.clean_remote import KINDS as NAMES  # noqa: PLC0415 - only remote targets need it
    from ..runfiles.clean_remote import Part, RemoteCleaner  # noqa: PLC0415
    from ..targets.open_remote import find_attachment  # noqa: PLC0415
    from ..targets.target_factory import open_target  # noqa: PLC0415

    host = open_target(compute, paths).host
    attachment = host.attachment

    def is_on_target(run: Run) -> bool:
        run_attachment = find_attachment(run.spec.compute, paths)
        return run_attachment is not None and attachment is not None and run_attachment.folder == attachment.folder

    def row(part: Part) -> dict[str, Any]:
        columns = {"kind": NAMES[part.kind], "things": part.things, "bytes": part.size}
        deletable = {} if options.remove else {"can_go": part.free_things, "can_go_bytes": part.free_size}
        return {**columns, **deletable, "kept": [_kept_row(kept, compute) for kept in part.kept]}

    cleaner = RemoteCleaner(History(paths), host, is_on_target, unfetched=options.unfetched, recent=options.recent)
    where = f"{compute.name}, {host.identity}"
    parts, problems = cleaner.remove() if options.remove else (cleaner.find(), [])
    _emit([row(part) for part in parts], output, query)
    for problem in problems:
        render.warn(f"could not delete {problem}")
    total = sum(part.free_size for part in parts)
    if options.remove:
        render.message(f"deleted {units.size(total)} from {where}")
    else:
        hint = f"; delete with: {options.command(compute.name)}" if total else ""
        render.message(f"{units.size(total)} can be deleted from {where}{hint}")
    for part in parts:
        for kept in part.kept:
            _print_kept(NAMES[part.kind], kept.things, kept.size, _explain_kept(kept.why, compute), kept.names)


def _kept_row(kept: KeptThere, compute: Compute) -> dict[str, Any]:
    row = {"things": kept.things, "bytes": kept.size, "reason": _explain_kept(kept.why, compute)}
    return {**row, "runs": list(kept.names)} if kept.names else row


def _explain_kept(reason: str, compute: Compute) -> str:
    from ..runfiles.clean_remote import WHY  # noqa: PLC0415 - see _clean_remote

    return WHY[reason].format(t=compute.name, clean=f"mlw experiment clean -t {compute.name} --yes")


def _emit(rows: list[dict[str, Any]], output: str, query: str | None) -> None:
    is_table = output == "table" and query is None
    names = [name for name in rows[0] if name != "kept"]  # `kept` is printed below the table
    shown = [
        {_HEADINGS.get(key, key): units.size(row[key]) if key.endswith("bytes") else row[key] for key in names}
        for row in rows
    ]
    render.emit(shown if is_table else rows, output=output, query=query)


def _local_rows(finds: list[Removable], kept: list[Kept]) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind,
            "things": sum(find.kind == kind for find in finds),
            "bytes": sum(find.size for find in finds if find.kind == kind),
            "kept": [
                {"things": item.things, "bytes": item.size, "reason": item.why} for item in kept if item.kind == kind
            ],
        }
        for kind in KINDS
    ]
