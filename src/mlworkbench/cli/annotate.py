"""What people write on runs: ``mlw history tag``, ``note``, ``rename``, ``archive``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import click

from ..errors import UnknownName, UsageError
from ..history.children import search_children
from ..history.query import Query
from ..history.store import History
from ..model import Noted, Run
from ..paths import user_paths
from ..report import units
from ..report.plain import plain
from . import paper, render
from .completion import complete_run
from .options import debugging

_LONGEST_TAG, _LONGEST_NAME, _LONGEST_NOTE = 250, 250, 20_000


@click.command(epilog="Example: mlw history tag demo-swift demo-brave --add best --add team=vision --remove draft")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option(
    "-a",
    "--add",
    "more",
    multiple=True,
    metavar="TAG",
    help="Tag to add: a word or NAME=VALUE; replaces another value of NAME (repeatable)",
)
@click.option("-d", "--remove", "less", multiple=True, metavar="TAG", help="Tag to remove, or its NAME (repeatable)")
@debugging
def tag(runs: tuple[str, ...], more: tuple[str, ...], less: tuple[str, ...]) -> None:
    """Add, remove, or list tags of runs.

    Prints the tags if neither --add nor --remove is given.
    """
    history = History(user_paths())
    found = _all(history, runs)
    if not more and not less:
        paper.write(plain(one) if len(found) == 1 else f"{run.id}\t{plain(one)}" for run in found for one in run.tags)
        for run in found:
            if not run.tags:
                render.message(f"run {run.id} has no tags; add one with --add TAG")
        return
    lines = [_line("tag", one, _LONGEST_TAG) for one in more]
    added = list({one.partition("=")[:2]: one for one in lines}.values())  # of a name the last one counts
    gone = {run.id: [tag for one in less for tag in _meant(run, one)] for run in found}
    for run in found:
        taken = [*gone[run.id], *(tag for one in added for tag in _replaced(run, one))]
        now = history.annotate(run.id, lambda noted, run=run, taken=taken: _tagged(run, noted, added, taken))  # type: ignore[misc]
        render.message(f"tags of run {now.id}: {', '.join(now.tags)}" if now.tags else f"run {now.id} has no tags")


def _meant(run: Run, one: str) -> list[str]:
    """The tags of the run that ``--remove`` names: that one, else all with this name before the ``=``."""
    if one in run.tags:
        return [one]
    found = [tag for tag in run.tags if tag.startswith(f"{one}=")]
    if not found:
        raise UnknownName("tag", one, run.tags)
    return found


def _replaced(run: Run, one: str) -> list[str]:
    """The tags that a new ``team=y`` takes the place of, as set_tag does."""
    name, equals, _ = one.partition("=")
    return [tag for tag in run.tags if equals and tag != one and tag.startswith(f"{name}=")]


def _tagged(run: Run, noted: Noted, more: Sequence[str], less: Sequence[str]) -> Noted:
    """Tags that it was given by others stay in their record: that they were taken away is noted beside."""
    bare = replace(run, noted=Noted()).tags
    untagged = [one for one in dict.fromkeys((*noted.untagged, *less)) if one in bare and one not in more]
    tags = [one for one in dict.fromkeys((*noted.tags, *more)) if one not in bare and (one not in less or one in more)]
    return replace(noted, tags=tuple(tags), untagged=tuple(untagged))


@click.command(epilog="Example: mlw history note demo-swift 'with the cleaned labels'")
@click.argument("run", shell_complete=complete_run)
@click.argument("text", required=False)
@click.option("--clear", is_flag=True, help="Remove the note")
@debugging
def note(run: str, text: str | None, clear: bool) -> None:
    """Set or print the note of a run.

    TEXT replaces the note; - reads it from standard input. Prints the note if TEXT is not given.
    """
    history = History(user_paths())
    found = history.get(run)
    if clear and text is not None:
        raise UsageError("--clear cannot be combined with a text", "remove one of them")
    if text is None and not clear:
        paper.write(plain(line) for line in (found.noted.note or "").splitlines())
        if not found.noted.note:
            render.message(f"run {found.id} has no note; set one with 'mlw history note {found.id} TEXT'")
        return
    words = _note(_from_stdin() if text == "-" else text or "")
    history.annotate(found.id, lambda noted: replace(noted, note=words or None))
    render.message(f"saved the note of run {found.id}" if words else f"removed the note of run {found.id}")


def _from_stdin() -> str:
    """Whatever the encoding of the terminal: a note is for people, and a byte that is no text is shown as such."""
    return sys.stdin.buffer.read(4 * (_LONGEST_NOTE + 1)).decode("utf-8", "replace")


def _note(text: str) -> str:
    if len(text) > _LONGEST_NOTE:
        raise UsageError(f"the note is longer than {_LONGEST_NOTE:,} characters", "store long texts as an output file")
    return text.strip().replace("\0", "")


@click.command(epilog="Example: mlw history rename demo-swift 'baseline, new labels'")
@click.argument("run", shell_complete=complete_run)
@click.argument("name", required=False)
@click.option("--clear", is_flag=True, help="Restore the original name, if any")
@debugging
def rename(run: str, name: str | None, clear: bool) -> None:
    """Change the display name of a run.

    The run ID does not change.
    """
    if clear is (name is not None):
        raise UsageError("missing new name", "give a name, or --clear to restore the original name")
    history = History(user_paths())
    words = None if name is None else _line("name", name, _LONGEST_NAME)
    now = history.annotate(history.get(run).id, lambda noted: replace(noted, name=words))
    render.message(f"run {now.id} is now named {now.name}" if now.name else f"run {now.id} has no name")


@click.command(epilog="Example: mlw history archive demo-swift demo-brave")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option("--undo", is_flag=True, help="Show the runs in lists again")
@debugging
def archive(runs: tuple[str, ...], undo: bool) -> None:
    """Hide runs and their children from lists.

    Nothing is deleted. 'mlw history list --archived' shows archived runs.
    """
    history = History(user_paths())
    for run in _all(history, runs):
        below = search_children(history, run.spec, Query(hidden=True))
        for one in (run, *below):
            history.annotate(one.id, lambda noted: replace(noted, archived=not undo))
        more = f" with its {units.counted(len(below), 'child', 'children')}" if below else ""
        render.message(f"{'restored' if undo else 'archived'} run {run.id}{more}")


def _all(history: History, names: Sequence[str]) -> list[Run]:
    """All of them, before anything is done to one."""
    return list({run.id: run for run in map(history.get, names)}.values())


def _line(kind: str, text: str, most: int) -> str:
    words = text.strip()
    if not words:
        raise UsageError(f"the {kind} is empty", "give at least one character")
    if not words.isprintable():
        raise UsageError(f"the {kind} {plain(words)!r} contains unprintable characters", "remove them")
    if len(words) > most:
        raise UsageError(f"the {kind} is longer than {most} characters", "use a note for longer texts")
    return words
