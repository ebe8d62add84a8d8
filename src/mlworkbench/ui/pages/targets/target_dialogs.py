"""Actions on a target: check, prepare, allow mounts and networks, reset the key, and detach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nicegui import ui

from ....sanitize import plain
from ... import operation_arguments
from ...components.error_notice import notify_error
from ...components.finding_list import findings_table
from ...components.operation_view import OperationView, format_command, run_operation
from ...operation_runner import Operation

if TYPE_CHECKING:
    from .target_card import CardView


class TargetDialog(ui.dialog):
    """Dialog with a title and a row of buttons at the bottom."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._props["aria-label"] = plain(title, 200)
        with self, ui.card().classes("mlw-card mlw-box"):
            with ui.element("h2").classes("mlw-box-title"):
                ui.label(plain(title, 200))
            self.body = ui.column().classes("mlw-full")
            with ui.row().classes("mlw-errand-buttons") as self.buttons:
                ui.button("Close", on_click=self.close).props("flat no-caps")
        self.on("hide", self.delete)


async def check(view: CardView) -> None:
    """Check the machine now and show the findings with remedies."""
    page, name = view.page, view.card.name
    operation = await page.backend.operations.start(
        *operation_arguments.check_arguments(name), cwd=page.scope.project.root
    )
    box = TargetDialog(f"Check {name}")
    with box.body:
        ui.label(format_command(operation)).classes("mlw-mono mlw-faint mlw-said")
        with ui.row().classes("mlw-errand-head") as waiting:
            ui.spinner(size="18px").props("aria-hidden=true")
            ui.label("Checking…").props("role=status")
        lines = OperationView(operation)
    box.open()
    await operation.done.wait()
    if box.client.is_deleted:
        return
    if not box.is_deleted:
        waiting.delete()
        _show_check(box, operation, lines)
    await page.refresh()


def _show_check(box: TargetDialog, operation: Operation, lines: OperationView) -> None:
    error = operation.error()
    with box.body:
        if isinstance(operation.result, list):
            lines.delete()
            findings_table(operation.result)
            summary = "Ready for runs" if error is None else "Not ready for runs"
            ui.label(summary).classes("mlw-good" if error is None else "mlw-bad").props("role=status")
        elif error is not None:
            ui.label(plain(error.message, 2000)).classes("mlw-bad mlw-said").props("role=status")
            if error.hint:
                ui.label(plain(error.hint, 2000)).classes("mlw-said")


async def prepare(view: CardView, configuration: str) -> None:
    """Build the environment before a run needs it. The build continues if the user leaves the page."""
    page = view.page
    operation = await page.backend.operations.start(
        *operation_arguments.prepare_arguments(configuration=configuration), cwd=page.scope.project.root
    )
    title = f"Prepare {configuration}"
    page.backend.operations.set_title(page.scope.key, title, operation)
    dialog = page.show_operation(title, operation)
    await operation.done.wait()
    if not dialog.client.is_deleted and operation.failed and not dialog.value:
        error = operation.error()
        if error is not None:
            notify_error(error)


def _show_identity(view: CardView) -> None:
    """Show the identity of the machine, because the target name is chosen by the project."""
    if view.card.attached is not None:
        ui.label(plain(view.card.attached.identity, 300)).classes("mlw-mono mlw-said")


async def detach(view: CardView) -> None:
    name = view.card.name
    box = TargetDialog(f"Detach {name}?")
    with box.body:
        _show_identity(view)
        ui.label(
            "Removes the SSH key that mlw installed on the machine, and deletes the target's .compute and .runconfig"
            " files from this project."
        )
        keep = ui.checkbox("Keep the files in aml_config").props("dense")
        text = "Also delete ~/.mlw on the machine (results are fetched first; shared folders are kept)"
        purge = ui.checkbox(text).props("dense")
        force = ui.checkbox("Detach even if the machine is unreachable").props("dense")
    with box.buttons:
        ui.button("Detach", icon="link_off", on_click=lambda: box.submit(True)).props(
            "unelevated no-caps color=negative"
        )
    if not await box:
        return
    await view.release_gpus()
    arguments = operation_arguments.detach_arguments(
        name, purge=bool(purge.value), keep_files=bool(keep.value), force=bool(force.value)
    )
    await run_operation(view.page.backend, f"Detach {name}", *arguments, cwd=view.page.scope.project.root)
    await view.page.refresh()


async def reset_key(view: CardView) -> None:
    name, attachment = view.card.name, view.card.attached
    box = TargetDialog(f"Reset the SSH key of {name}")
    with box.body:
        _show_identity(view)
        if attachment is not None:
            ui.label(f"Current authentication: {plain(attachment.key, 300)}").classes("mlw-faint")
            ui.label(f"Host key: {plain(attachment.host_key, 200)}").classes("mlw-mono mlw-faint mlw-said")
        ui.label(
            "Creates a new SSH key that replaces the old one. If the machine was reinstalled, enter its new host key:"
        )
        key = ui.input("New host key fingerprint (optional)", placeholder="SHA256:…").classes("mlw-full")
        key.props("outlined dense autocomplete=off spellcheck=false")
    with box.buttons:
        ui.button("Reset key", icon="key", on_click=lambda: box.submit(True)).props("unelevated no-caps")
    if not await box:
        return
    await view.release_gpus()
    arguments = operation_arguments.reset_key_arguments(name, str(key.value or "").strip() or None)
    await run_operation(view.page.backend, f"Reset the SSH key of {name}", *arguments, cwd=view.page.scope.project.root)
    await view.page.refresh()


@dataclass(frozen=True)
class ConsentKind:
    """Dialog texts for one kind of consent."""

    kind: str  # as in the option --allow-KIND
    title: str
    more: str
    example: str


MOUNTS = ConsentKind("mount", "Folders on {} that containers may mount", "Add folder", "/data:ro")
NETWORKS = ConsentKind("network", "Networks on {} that containers may join", "Add network", "host")


async def consents(view: CardView, which: ConsentKind) -> None:
    """Edit which mounts or networks containers may use on the machine."""
    name, attachment = view.card.name, view.card.attached
    box = TargetDialog(which.title.format(name))
    allowed: tuple[str, ...] = getattr(attachment, f"{which.kind}s") if attachment else ()
    with box.body:
        _show_identity(view)
        kept = {text: ui.checkbox(plain(text, 300), value=True).props("dense") for text in allowed}
        if not allowed:
            ui.label("None.").classes("mlw-faint")
        more = ui.input(which.more, placeholder=which.example).props("outlined dense autocomplete=off")
        more.classes("mlw-full")
    with box.buttons:
        ui.button("Save", icon="save", on_click=lambda: box.submit(True)).props("unelevated no-caps")
    if not await box:
        return
    allow = [text] if (text := str(more.value or "").strip()) else []
    forbid = [text for text, checkbox in kept.items() if not checkbox.value]
    if allow or forbid:
        arguments = operation_arguments.update_arguments(name, which.kind, allow=allow, forbid=forbid)
        await run_operation(view.page.backend, f"Permissions of {name}", *arguments, cwd=view.page.scope.project.root)
        await view.page.refresh()
