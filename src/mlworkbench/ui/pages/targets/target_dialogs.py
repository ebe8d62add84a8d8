"""What is done with one target: check, prepare, allow mounts and networks, make a new key, detach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nicegui import ui

from ....report.plain import plain
from ...answers import words
from ...errands import Errand
from ...parts.errand import ErrandView, carried_out, command_of
from ...parts.findings import findings_table
from ...parts.trouble import tell

if TYPE_CHECKING:
    from .card import CardView


class Box(ui.dialog):
    """A dialog with a title and a row of buttons at its end."""

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
    """Look at the machine now; what is missing there is told with its remedy."""
    page, name = view.page, view.card.name
    errand = await page.desk.errands.start(*words.check_words(name), cwd=page.where.project.root)
    box = Box(f"Check {name}")
    with box.body:
        ui.label(command_of(errand)).classes("mlw-mono mlw-faint mlw-said")
        with ui.row().classes("mlw-errand-head") as waiting:
            ui.spinner(size="18px").props("aria-hidden=true")
            ui.label("Checking…").props("role=status")
        lines = ErrandView(errand)
    box.open()
    await errand.done.wait()
    if box.client.is_deleted:
        return
    if not box.is_deleted:
        waiting.delete()
        _show_check(box, errand, lines)
    await page.refresh()


def _show_check(box: Box, errand: Errand, lines: ErrandView) -> None:
    error = errand.error()
    with box.body:
        if isinstance(errand.answer, list):
            lines.delete()
            findings_table(errand.answer)
            well = "Ready for runs" if error is None else "Not ready for runs"
            ui.label(well).classes("mlw-good" if error is None else "mlw-bad").props("role=status")
        elif error is not None:
            ui.label(plain(error.message, 2000)).classes("mlw-bad mlw-said").props("role=status")
            if error.hint:
                ui.label(plain(error.hint, 2000)).classes("mlw-said")


async def prepare(view: CardView, configuration: str) -> None:
    """Build the environment ahead of a run. To leave the page does not stop it."""
    page = view.page
    errand = await page.desk.errands.start(
        *words.prepare_words(configuration=configuration), cwd=page.where.project.root
    )
    title = f"Prepare {configuration}"
    page.desk.errands.remember(page.where.key, title, errand)
    dialog = page.look_at(title, errand)
    await errand.done.wait()
    if not dialog.client.is_deleted and errand.failed and not dialog.value:
        error = errand.error()
        if error is not None:
            tell(error)


def _machine(view: CardView) -> None:
    """The machine itself: its name in the project is the project's choice."""
    if view.card.attached is not None:
        ui.label(plain(view.card.attached.identity, 300)).classes("mlw-mono mlw-said")


async def detach(view: CardView) -> None:
    name = view.card.name
    box = Box(f"Detach {name}?")
    with box.body:
        _machine(view)
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
    await view.let_go()
    said = words.detach_words(name, purge=bool(purge.value), keep_files=bool(keep.value), force=bool(force.value))
    await carried_out(view.page.desk, f"Detach {name}", *said, cwd=view.page.where.project.root)
    await view.page.refresh()


async def reset_key(view: CardView) -> None:
    name, known = view.card.name, view.card.attached
    box = Box(f"Reset the SSH key of {name}")
    with box.body:
        _machine(view)
        if known is not None:
            ui.label(f"Current authentication: {plain(known.key, 300)}").classes("mlw-faint")
            ui.label(f"Host key: {plain(known.host_key, 200)}").classes("mlw-mono mlw-faint mlw-said")
        ui.label(
            "Creates a new SSH key that replaces the old one. If the machine was reinstalled, enter its new host key:"
        )
        key = ui.input("New host key fingerprint (optional)", placeholder="SHA256:…").classes("mlw-full")
        key.props("outlined dense autocomplete=off spellcheck=false")
    with box.buttons:
        ui.button("Reset key", icon="key", on_click=lambda: box.submit(True)).props("unelevated no-caps")
    if not await box:
        return
    await view.let_go()
    said = words.reset_key_words(name, str(key.value or "").strip() or None)
    await carried_out(view.page.desk, f"Reset the SSH key of {name}", *said, cwd=view.page.where.project.root)
    await view.page.refresh()


@dataclass(frozen=True)
class ConsentKind:
    """The texts of the dialog for one kind of consent."""

    kind: str  # as in the option --allow-KIND
    title: str
    more: str
    example: str


MOUNTS = ConsentKind("mount", "Folders on {} that containers may mount", "Add folder", "/data:ro")
NETWORKS = ConsentKind("network", "Networks on {} that containers may join", "Add network", "host")


async def consents(view: CardView, which: ConsentKind) -> None:
    """What containers may have of the machine."""
    name, known = view.card.name, view.card.attached
    box = Box(which.title.format(name))
    allowed: tuple[str, ...] = getattr(known, f"{which.kind}s") if known else ()
    with box.body:
        _machine(view)
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
    forbid = [text for text, box_of in kept.items() if not box_of.value]
    if allow or forbid:
        said = words.update_words(name, which.kind, allow=allow, forbid=forbid)
        await carried_out(view.page.desk, f"Permissions of {name}", *said, cwd=view.page.where.project.root)
        await view.page.refresh()
