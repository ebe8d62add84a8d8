"""What can be done to runs: each of these asks, does it by the command line, tells, and returns whether it changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from nicegui import ui

from ...report.plain import plain
from ...report.units import counted, size
from ..answers import rerun as answers
from ..desk import Desk
from .again import RerunDialog
from .trouble import telling

_NAMED = 8  # runs that a question names
_LONGEST = 250
_LONGEST_NOTE = 20_000


@contextmanager
def asking(title: str) -> Iterator[ui.dialog]:
    """A dialog that is gone from the page when it was answered: ``with asking(…) as dialog: …; if await dialog: …``."""
    with ui.dialog() as dialog, ui.card().classes("mlw-card mlw-dialog"):
        dialog._props["aria-label"] = plain(title, 200)
        ui.label(plain(title, 200)).classes("mlw-dialog-title")
        yield dialog
    dialog.on("hide", dialog.delete)


def answers_of(dialog: ui.dialog, yes: str, *, no: str = "Cancel", bad: bool = False, result: Any = True) -> ui.button:
    """The two buttons below; ``result``: what the one of ``yes`` answers."""
    with ui.row().classes("mlw-dialog-buttons"):
        ui.button(no, on_click=lambda: dialog.submit(None), color=None).props("flat no-caps").classes("mlw-action")
        button = ui.button(yes, on_click=lambda: dialog.submit(result)).props("no-caps unelevated")
        button.props("color=negative") if bad else None
    return button


def _named(ids: Sequence[str]) -> str:
    return plain(ids[0], 100) if len(ids) == 1 else f"{len(ids)} runs"


def _list_of(ids: Sequence[str]) -> None:
    with ui.element("ul").classes("mlw-dialog-list mlw-mono"):
        for one in ids[:_NAMED]:
            with ui.element("li"):
                ui.label(plain(one, 100))
        if len(ids) > _NAMED:
            with ui.element("li"):
                ui.label(f"and {len(ids) - _NAMED} more")


def _command(words: str) -> None:
    ui.label(plain(words, 300)).classes("mlw-mono mlw-faint mlw-said")


async def cancel(desk: Desk, run_id: str) -> bool:
    """Stop a run."""
    with asking(f"Cancel run {run_id}?") as dialog:
        ui.label("Sends SIGTERM to its processes, and SIGKILL after 30 seconds. Existing outputs are kept.")
        _command(f"mlw cancel {run_id}")
        answers_of(dialog, "Cancel run", no="Keep running", bad=True)
    if not await dialog:
        return False
    with telling():
        errand = await desk.errands.start("experiment", "cancel", "--no-wait", "--", run_id)
        await errand.done.wait()
        error = errand.error()
        if error is not None:
            raise error
        said = errand.lines[-1] if errand.lines else f"canceling run {run_id}"  # or: has ended already
        ui.notify(plain(said, 300), type="positive")
        return True
    return False


async def tag(desk: Desk, ids: Sequence[str]) -> bool:
    """Add tags to runs, take others away."""
    now: list[str] = []
    with telling():
        now = await desk.ask(answers.tags, ids)
    gone: set[str] = set()
    typed = [""]  # without an Enter after it
    with asking(f"Tags of {_named(ids)}") as dialog:
        field = ui.input_chips("Add tags (press Enter after each)", new_value_mode="add-unique").props("outlined dense")
        field.classes("mlw-full").props(f"maxlength={_LONGEST}")
        field.on("input-value", lambda event: typed.__setitem__(0, str(event.args or "")))
        field.on("blur", lambda: _take_over(field, typed))  # the field forgets it next, and before the click is through
        if now:
            ui.label("Current tags; clear a checkbox to remove a tag").classes("mlw-faint")
        with ui.element("div").classes("mlw-dialog-ticks"):
            for one in now:
                box = ui.checkbox(plain(one, 80), value=True).props("dense")
                box.on_value_change(lambda event, one=one: gone.discard(one) if event.value else gone.add(one))
        _command(f"mlw history tag {' '.join(ids[:3])} --add TAG --remove TAG")
        answers_of(dialog, "Save")
    if not await dialog:
        return False
    added = [one for one in dict.fromkeys((*(field.value or []), *typed)) if one.strip()]
    if not added and not gone:
        return False
    with telling():
        for one in sorted(gone):  # not all of the runs need to have it
            having = [run for run in ids if one in await desk.ask(answers.tags, [run])]
            if having:
                await desk.errands.do("history", "tag", f"--remove={one}", "--", *having)
        if added:
            await desk.errands.do("history", "tag", *(f"--add={one}" for one in added), "--", *ids)
        ui.notify(f"tagged {_named(ids)}", type="positive")
        return True
    return False


def _take_over(field: ui.input_chips, typed: list[str]) -> None:
    """A word without an Enter after it counts too."""
    if typed[0].strip() and typed[0] not in field.value:
        field.value = [*field.value, typed[0]]


async def archive(desk: Desk, ids: Sequence[str], undo: bool = False) -> bool:
    """Leave runs out of lists, or bring them back. It is undone as easily, so nobody is asked."""
    with telling():
        await desk.errands.do("history", "archive", *(["--undo"] if undo else []), "--", *ids)
        words = (
            f"unarchived {_named(ids)}" if undo else f"archived {_named(ids)}; select Archived to show archived runs"
        )
        ui.notify(words, type="positive")
        return True
    return False


async def remove(desk: Desk, ids: Sequence[str]) -> bool:
    """Delete runs for good."""
    found = None
    with telling():
        found = await desk.ask(answers.weight, ids)
    if found is None:
        return False
    with asking(f"Delete {_named(ids)} permanently?") as dialog:
        _list_of(found.runs)
        more = f" This also deletes {counted(found.children, 'child run')}." if found.children else ""
        ui.label(f"Deletes logs, metrics, and outputs, and frees {size(found.size)}.{more}")
        _command(f"mlw history remove {' '.join(ids[:3])}" + (" …" if len(ids) > 3 else ""))
        answers_of(dialog, "Delete", bad=True)
    if not await dialog:
        return False
    with telling():
        await desk.errands.do("history", "remove", "--yes", "--", *ids)
        ui.notify(f"deleted {_named(ids)}", type="positive")
        return True
    return False


async def rename(desk: Desk, run_id: str) -> bool:
    """Another name for people."""
    found = None
    with telling():
        found = await desk.ask(answers.told, run_id)
    if found is None:
        return False
    with asking(f"Rename run {found[0]}") as dialog:
        field = ui.input("Name", value=found[1]).props(f"outlined dense maxlength={_LONGEST}").classes("mlw-full")
        field.on("keydown.enter", lambda: dialog.submit(True))
        ui.label("Leave empty to restore the name given at submission.").classes("mlw-faint")
        _command(f"mlw history rename {found[0]} NAME")
        answers_of(dialog, "Save")
    if not await dialog or (field.value or "").strip() == found[1]:
        return False
    name = (field.value or "").strip()
    with telling():
        await desk.errands.do("history", "rename", *(["--", found[0], name] if name else ["--clear", "--", found[0]]))
        return True
    return False


async def note(desk: Desk, run_id: str) -> bool:
    """A note on a run."""
    found = None
    with telling():
        found = await desk.ask(answers.told, run_id)
    if found is None:
        return False
    with asking(f"Note for run {found[0]}") as dialog:
        field = ui.textarea("Note", value=found[2]).props(f"outlined autogrow maxlength={_LONGEST_NOTE}")
        field.classes("mlw-full")
        _command(f"mlw history note {found[0]} TEXT")
        answers_of(dialog, "Save")
    text = (field.value or "").strip() if await dialog else found[2]
    if text == found[2]:
        return False
    with telling():
        if text:
            await desk.errands.do("history", "note", "--", found[0], "-", secret=text)
        else:
            await desk.errands.do("history", "note", "--clear", "--", found[0])
        return True
    return False


async def rerun(desk: Desk, run_id: str) -> bool:
    """Submit a run once more, with changes if wanted; then goes to the new one."""
    given = None
    with telling():
        given = await desk.ask(
            lambda history: answers.again(history, run_id, [one.path for one in desk.projects.known()])
        )
    if given is None:
        return False
    with asking(f"Rerun {given.run.id}") as dialog:
        form = RerunDialog(desk, given)
        with ui.row().classes("mlw-dialog-buttons"):
            no = ui.button("Cancel", on_click=lambda: dialog.submit(None), color=None)
            no.props("flat no-caps").classes("mlw-action")
            ui.button("Run", icon="play_arrow", on_click=lambda: form.submit(dialog.submit)).props("no-caps unelevated")
    dialog.on("show", form.look)
    new = await dialog
    if not new:
        return False
    ui.navigate.to(f"/runs/{quote(str(new), safe='')}")
    return True
