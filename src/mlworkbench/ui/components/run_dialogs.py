"""Dialogs for actions on runs.

Each one prompts the user, runs the command, shows a notification, and returns whether anything
changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from nicegui import ui

from ...report.units import pluralize, size
from ...sanitize import plain
from ..backend import Backend
from ..queries import dialog_data as queries
from .error_notice import report_errors
from .rerun_form import RerunForm

_MAX_LISTED = 8  # maximum number of runs that a dialog lists
_MAX_LENGTH = 250
_MAX_NOTE_LENGTH = 20_000


@contextmanager
def titled_dialog(title: str) -> Iterator[ui.dialog]:
    """Create a dialog that is deleted when it closes.

    Usage: ``with titled_dialog(…) as dialog: …; if await dialog: …``.
    """
    with ui.dialog() as dialog, ui.card().classes("mlw-card mlw-dialog"):
        dialog._props["aria-label"] = plain(title, 200)
        ui.label(plain(title, 200)).classes("mlw-dialog-title")
        yield dialog
    dialog.on("hide", dialog.delete)


def dialog_buttons(
    dialog: ui.dialog, yes: str, *, no: str = "Cancel", bad: bool = False, result: Any = True
) -> ui.button:
    """Add the two buttons of a dialog. The dialog returns ``result`` if the user clicks ``yes``."""
    with ui.row().classes("mlw-dialog-buttons"):
        ui.button(no, on_click=lambda: dialog.submit(None), color=None).props("flat no-caps").classes("mlw-action")
        button = ui.button(yes, on_click=lambda: dialog.submit(result)).props("no-caps unelevated")
        button.props("color=negative") if bad else None
    return button


def _describe_runs(ids: Sequence[str]) -> str:
    return plain(ids[0], 100) if len(ids) == 1 else f"{len(ids)} runs"


def _run_list(ids: Sequence[str]) -> None:
    with ui.element("ul").classes("mlw-dialog-list mlw-mono"):
        for run_id in ids[:_MAX_LISTED]:
            with ui.element("li"):
                ui.label(plain(run_id, 100))
        if len(ids) > _MAX_LISTED:
            with ui.element("li"):
                ui.label(f"and {len(ids) - _MAX_LISTED} more")


def _command(command: str) -> None:
    ui.label(plain(command, 300)).classes("mlw-mono mlw-faint mlw-said")


async def cancel(backend: Backend, run_id: str) -> bool:
    """Cancel a run."""
    with titled_dialog(f"Cancel run {run_id}?") as dialog:
        ui.label("Sends SIGTERM to its processes, and SIGKILL after 30 seconds. Existing outputs are kept.")
        _command(f"mlw cancel {run_id}")
        dialog_buttons(dialog, "Cancel run", no="Keep running", bad=True)
    if not await dialog:
        return False
    with report_errors():
        operation = await backend.operations.start("experiment", "cancel", "--no-wait", "--", run_id)
        await operation.done.wait()
        error = operation.error()
        if error is not None:
            raise error
        # The last line may also report that the run has already ended.
        message = operation.lines[-1] if operation.lines else f"canceling run {run_id}"
        ui.notify(plain(message, 300), type="positive")
        return True
    return False


async def tag(backend: Backend, ids: Sequence[str]) -> bool:
    """Add tags to runs, or remove tags from them."""
    current: list[str] = []
    with report_errors():
        current = await backend.call(queries.tags, ids)
    removed: set[str] = set()
    typed = [""]  # text that was not confirmed with Enter
    with titled_dialog(f"Tags of {_describe_runs(ids)}") as dialog:
        field = ui.input_chips("Add tags (press Enter after each)", new_value_mode="add-unique").props("outlined dense")
        field.classes("mlw-full").props(f"maxlength={_MAX_LENGTH}")
        field.on("input-value", lambda event: typed.__setitem__(0, str(event.args or "")))
        field.on("blur", lambda: _add_typed_tag(field, typed))  # a click on Save first clears the field's text
        if current:
            ui.label("Current tags; clear a checkbox to remove a tag").classes("mlw-faint")
        with ui.element("div").classes("mlw-dialog-ticks"):
            for name in current:
                box = ui.checkbox(plain(name, 80), value=True).props("dense")
                box.on_value_change(
                    lambda event, name=name: removed.discard(name) if event.value else removed.add(name)
                )
        _command(f"mlw history tag {' '.join(ids[:3])} --add TAG --remove TAG")
        dialog_buttons(dialog, "Save")
    if not await dialog:
        return False
    added = [name for name in dict.fromkeys((*(field.value or []), *typed)) if name.strip()]
    if not added and not removed:
        return False
    with report_errors():
        for name in sorted(removed):  # some of the runs may not have the tag
            tagged = [run for run in ids if name in await backend.call(queries.tags, [run])]
            if tagged:
                await backend.operations.run("history", "tag", f"--remove={name}", "--", *tagged)
        if added:
            await backend.operations.run("history", "tag", *(f"--add={name}" for name in added), "--", *ids)
        ui.notify(f"tagged {_describe_runs(ids)}", type="positive")
        return True
    return False


def _add_typed_tag(field: ui.input_chips, typed: list[str]) -> None:
    """Add a tag that was not confirmed with Enter."""
    if typed[0].strip() and typed[0] not in field.value:
        field.value = [*field.value, typed[0]]


async def archive(backend: Backend, ids: Sequence[str], undo: bool = False) -> bool:
    """Archive or unarchive runs, without confirmation because this is easily undone."""
    with report_errors():
        await backend.operations.run("history", "archive", *(["--undo"] if undo else []), "--", *ids)
        message = (
            f"unarchived {_describe_runs(ids)}"
            if undo
            else f"archived {_describe_runs(ids)}; select Archived to show archived runs"
        )
        ui.notify(message, type="positive")
        return True
    return False


async def remove(backend: Backend, ids: Sequence[str]) -> bool:
    """Delete runs permanently."""
    summary = None
    with report_errors():
        summary = await backend.call(queries.deletion_size, ids)
    if summary is None:
        return False
    with titled_dialog(f"Delete {_describe_runs(ids)} permanently?") as dialog:
        _run_list(summary.runs)
        more = f" This also deletes {pluralize(summary.children, 'child run')}." if summary.children else ""
        ui.label(f"Deletes logs, metrics, and outputs, and frees {size(summary.size)}.{more}")
        _command(f"mlw history remove {' '.join(ids[:3])}" + (" …" if len(ids) > 3 else ""))
        dialog_buttons(dialog, "Delete", bad=True)
    if not await dialog:
        return False
    with report_errors():
        await backend.operations.run("history", "remove", "--yes", "--", *ids)
        ui.notify(f"deleted {_describe_runs(ids)}", type="positive")
        return True
    return False


async def rename(backend: Backend, run_id: str) -> bool:
    """Change the display name of a run."""
    details = None
    with report_errors():
        details = await backend.call(queries.name_and_note, run_id)
    if details is None:
        return False
    with titled_dialog(f"Rename run {details[0]}") as dialog:
        field = ui.input("Name", value=details[1]).props(f"outlined dense maxlength={_MAX_LENGTH}").classes("mlw-full")
        field.on("keydown.enter", lambda: dialog.submit(True))
        ui.label("Leave empty to restore the name given at submission.").classes("mlw-faint")
        _command(f"mlw history rename {details[0]} NAME")
        dialog_buttons(dialog, "Save")
    if not await dialog or (field.value or "").strip() == details[1]:
        return False
    name = (field.value or "").strip()
    with report_errors():
        await backend.operations.run(
            "history", "rename", *(["--", details[0], name] if name else ["--clear", "--", details[0]])
        )
        return True
    return False


async def note(backend: Backend, run_id: str) -> bool:
    """Edit the note of a run."""
    details = None
    with report_errors():
        details = await backend.call(queries.name_and_note, run_id)
    if details is None:
        return False
    with titled_dialog(f"Note for run {details[0]}") as dialog:
        field = ui.textarea("Note", value=details[2]).props(f"outlined autogrow maxlength={_MAX_NOTE_LENGTH}")
        field.classes("mlw-full")
        _command(f"mlw history note {details[0]} TEXT")
        dialog_buttons(dialog, "Save")
    text = (field.value or "").strip() if await dialog else details[2]
    if text == details[2]:
        return False
    with report_errors():
        if text:
            await backend.operations.run("history", "note", "--", details[0], "-", secret=text)
        else:
            await backend.operations.run("history", "note", "--clear", "--", details[0])
        return True
    return False


async def rerun(backend: Backend, run_id: str) -> bool:
    """Submit a run again, optionally with changes, and open the page of the new run."""
    original = None
    with report_errors():
        original = await backend.call(
            lambda history: queries.find_previous_run(
                history, run_id, [project.path for project in backend.projects.recent()]
            )
        )
    if original is None:
        return False
    with titled_dialog(f"Rerun {original.run.id}") as dialog:
        form = RerunForm(backend, original)
        with ui.row().classes("mlw-dialog-buttons"):
            button = ui.button("Cancel", on_click=lambda: dialog.submit(None), color=None)
            button.props("flat no-caps").classes("mlw-action")
            ui.button("Run", icon="play_arrow", on_click=lambda: form.submit(dialog.submit)).props("no-caps unelevated")
    dialog.on("show", form.compare_code)
    new_id = await dialog
    if not new_id:
        return False
    ui.navigate.to(f"/runs/{quote(str(new_id), safe='')}")
    return True
