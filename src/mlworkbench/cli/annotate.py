"""Commands that annotate runs: ``mlw history tag``, ``note``, ``rename``, and ``archive``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import click

from ..errors import UnknownName, UsageError
from ..history.child_runs import search_children
from ..history.run_query import Query
from ..history.store import History
from ..model import Annotations, Run
from ..paths import user_paths
from ..report import units
from ..sanitize import plain
from . import render, text_output
from .completion_types import complete_run
from .options import global_options

_MAX_TAG, _MAX_NAME, _MAX_NOTE = 250, 250, 20_000


@click.command(epilog="Example: mlw history tag demo-swift demo-brave --add best --add team=vision --remove draft")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option(
    "-a",
    "--add",
    "added",
    multiple=True,
    metavar="TAG",
    help="Tag to add: a word or NAME=VALUE; replaces another value of NAME (repeatable)",
)
@click.option("-d", "--remove", "removed", multiple=True, metavar="TAG", help="Tag to remove, or its NAME (repeatable)")
@global_options
def tag(runs: tuple[str, ...], added: tuple[str, ...], removed: tuple[str, ...]) -> None:
    """Add, remove, or list tags of runs.

    Prints the tags if neither --add nor --remove is given.
    """
    history = History(user_paths())
    selected = _get_runs(history, runs)
    if not added and not removed:
        text_output.write_lines(
            plain(tag) if len(selected) == 1 else f"{run.id}\t{plain(tag)}" for run in selected for tag in run.tags
        )
        for run in selected:
            if not run.tags:
                render.message(f"run {run.id} has no tags; add one with --add TAG")
        return
    checked = [_check_line("tag", tag, _MAX_TAG) for tag in added]
    new_tags = list({tag.partition("=")[:2]: tag for tag in checked}.values())  # the last value for a name wins
    matching = {run.id: [tag for name in removed for tag in _matching_tags(run, name)] for run in selected}
    for run in selected:
        dropped = [*matching[run.id], *(tag for new in new_tags for tag in _replaced_tags(run, new))]
        updated = history.annotate(
            run.id,
            lambda old, run=run, dropped=dropped: _update_tags(run, old, new_tags, dropped),  # type: ignore[misc]
        )
        render.message(
            f"tags of run {updated.id}: {', '.join(updated.tags)}" if updated.tags else f"run {updated.id} has no tags"
        )


def _matching_tags(run: Run, name: str) -> list[str]:
    """Return the tags that a ``--remove`` value matches: the exact tag, or all tags ``VALUE=…``."""
    if name in run.tags:
        return [name]
    matches = [tag for tag in run.tags if tag.startswith(f"{name}=")]
    if not matches:
        raise UnknownName("tag", name, run.tags)
    return matches


def _replaced_tags(run: Run, new_tag: str) -> list[str]:
    """Return the tags that ``new_tag`` replaces because they have the same name (see ``set_tag``)."""
    name, equals, _ = new_tag.partition("=")
    return [tag for tag in run.tags if equals and tag != new_tag and tag.startswith(f"{name}=")]


def _update_tags(run: Run, old: Annotations, added: Sequence[str], removed: Sequence[str]) -> Annotations:
    """Return the annotations with tags added and removed.

    Tags that the run itself recorded stay in its record. Their removal is stored in ``untagged``.
    """
    recorded = replace(run, noted=Annotations()).tags
    untagged = [tag for tag in dict.fromkeys((*old.untagged, *removed)) if tag in recorded and tag not in added]
    tags = [
        tag
        for tag in dict.fromkeys((*old.tags, *added))
        if tag not in recorded and (tag not in removed or tag in added)
    ]
    return replace(old, tags=tuple(tags), untagged=tuple(untagged))


@click.command(epilog="Example: mlw history note demo-swift 'with the cleaned labels'")
@click.argument("run", shell_complete=complete_run)
@click.argument("text", required=False)
@click.option("--clear", is_flag=True, help="Remove the note")
@global_options
def note(run: str, text: str | None, clear: bool) -> None:
    """Set or print the note of a run.

    TEXT replaces the note; - reads it from standard input. Prints the note if TEXT is not given.
    """
    history = History(user_paths())
    selected = history.get(run)
    if clear and text is not None:
        raise UsageError("--clear cannot be combined with a text", "remove one of them")
    if text is None and not clear:
        text_output.write_lines(plain(line) for line in (selected.noted.note or "").splitlines())
        if not selected.noted.note:
            render.message(f"run {selected.id} has no note; set one with 'mlw history note {selected.id} TEXT'")
        return
    new_note = _check_note(_read_stdin() if text == "-" else text or "")
    history.annotate(selected.id, lambda old: replace(old, note=new_note or None))
    render.message(f"saved the note of run {selected.id}" if new_note else f"removed the note of run {selected.id}")


def _read_stdin() -> str:
    """Read a note from standard input as UTF-8 regardless of the locale. Replace invalid bytes."""
    return sys.stdin.buffer.read(4 * (_MAX_NOTE + 1)).decode("utf-8", "replace")


def _check_note(text: str) -> str:
    if len(text) > _MAX_NOTE:
        raise UsageError(f"the note is longer than {_MAX_NOTE:,} characters", "store long texts as an output file")
    return text.strip().replace("\0", "")


@click.command(epilog="Example: mlw history rename demo-swift 'baseline, new labels'")
@click.argument("run", shell_complete=complete_run)
@click.argument("name", required=False)
@click.option("--clear", is_flag=True, help="Restore the original name, if any")
@global_options
def rename(run: str, name: str | None, clear: bool) -> None:
    """Change the display name of a run.

    The run ID does not change.
    """
    if clear is (name is not None):
        raise UsageError("missing new name", "give a name, or --clear to restore the original name")
    history = History(user_paths())
    new_name = None if name is None else _check_line("name", name, _MAX_NAME)
    updated = history.annotate(history.get(run).id, lambda old: replace(old, name=new_name))
    render.message(f"run {updated.id} is now named {updated.name}" if updated.name else f"run {updated.id} has no name")


@click.command(epilog="Example: mlw history archive demo-swift demo-brave")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option("--undo", is_flag=True, help="Show the runs in lists again")
@global_options
def archive(runs: tuple[str, ...], undo: bool) -> None:
    """Hide runs and their children from lists.

    Nothing is deleted. 'mlw history list --archived' shows archived runs.
    """
    history = History(user_paths())
    for run in _get_runs(history, runs):
        children = search_children(history, run.spec, Query(hidden=True))
        for member in (run, *children):
            history.annotate(member.id, lambda old: replace(old, archived=not undo))
        suffix = f" with its {units.pluralize(len(children), 'child', 'children')}" if children else ""
        render.message(f"{'restored' if undo else 'archived'} run {run.id}{suffix}")


def _get_runs(history: History, names: Sequence[str]) -> list[Run]:
    """Return the named runs without duplicates. Raise for unknown names before changing any run."""
    return list({run.id: run for run in map(history.get, names)}.values())


def _check_line(kind: str, text: str, limit: int) -> str:
    line = text.strip()
    if not line:
        raise UsageError(f"the {kind} is empty", "give at least one character")
    if not line.isprintable():
        raise UsageError(f"the {kind} {plain(line)!r} contains unprintable characters", "remove them")
    if len(line) > limit:
        raise UsageError(f"the {kind} is longer than {limit} characters", "use a note for longer texts")
    return line
