"""Dialogs for a run's files. Each one prompts the user and then runs a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from nicegui import ui

from ....runfiles.code_restore import default_destination
from ....runfiles.diagnostics_bundle import sharing_warnings
from ....sanitize import plain
from ....secret_sources import known_values
from ...components.error_notice import report_errors
from ...components.operation_view import run_operation
from ...components.run_dialogs import dialog_buttons, titled_dialog
from ...queries import code, outputs
from ...queries.projects import key_of
from .page_context import RunPageContext

_MAX_LENGTH = 4000


async def restore(context: RunPageContext) -> None:
    """Restore the run's code to a new folder or to the project folder."""
    run = context.run
    root = await _project_root(context)
    default_folder = default_destination(run, str(root or run.spec.project_path))
    with titled_dialog("Restore the code of this run") as dialog:
        ui.label("Restores all project files as they were when the run was submitted.")
        options = {"new": "To a new folder"}
        if root is not None:
            options["place"] = "In the project folder, if no changes would be lost"
        destination = ui.radio(options, value="new").props("dense")
        folder_field = _text_field("New folder", default_folder).bind_visibility_from(destination, "value", value="new")
        ui.label(f"mlw project restore --run-id {plain(run.id, 100)}").classes("mlw-mono mlw-faint mlw-said")
        dialog_buttons(dialog, "Restore")
    if not await dialog:
        return
    arguments = ["project", "restore", f"--run-id={run.id}"]
    arguments += ["--in-place"] if destination.value == "place" else [f"--path={folder_field.value}"]
    operation = await run_operation(context.backend, "Restore", *arguments, cwd=root, notify=False)
    if operation.failed:
        return
    folder = root if destination.value == "place" and root else Path(folder_field.value)
    folder = folder if folder.is_absolute() or root is None else root / folder

    async def visit() -> None:
        with report_errors():
            project = await context.backend.call(lambda _: context.backend.projects.add(folder))
            ui.navigate.to(f"/p/{project.key}")

    _show_done(operation.lines[-1] if operation.lines else "Code restored", "Open project", visit)


def _show_done(message: str, label: str, on_click: Callable[[], object]) -> None:
    """Show a result with a button for the next step. The page stays usable."""
    with ui.context.client, ui.card().classes("mlw-card mlw-done") as box:  # the clicked element may no longer exist
        ui.icon("check_circle").props("aria-hidden=true").classes("mlw-good")
        ui.label(plain(message, 400)).classes("mlw-said mlw-done-words").props("role=status")
        ui.button(label, on_click=on_click).props("flat dense no-caps")
        ui.button("Close", on_click=box.delete, color=None).props("flat dense no-caps").classes("mlw-action")


async def download(context: RunPageContext) -> None:
    """Download the outputs as a zip file, or copy them to a folder on the machine running ``mlw ui``."""
    run = context.run
    root = await _project_root(context)
    is_local = await context.backend.call(outputs.has_all_outputs, run.id)
    with titled_dialog("Download outputs") as dialog:
        if is_local or not run.status.final:
            _download_link("Download as zip", f"{context.api}/outputs.zip", dialog)
            ui.label(
                "All outputs in one file, downloaded by the browser."
                if is_local
                else "All outputs so far, in one file."
            )
        else:
            ui.label(
                "The outputs are still on the target. Copy them to a folder to fetch them to this machine."
            ).classes("mlw-warn")
        ui.separator()
        ui.label("Or copy them to a folder on the machine that runs mlw ui.")
        folder_field = _text_field("Folder", str((root / "outputs" if root else Path.home()) / run.id))
        ui.label(f"mlw history download {plain(run.id, 100)} --directory FOLDER").classes("mlw-mono mlw-faint mlw-said")
        dialog_buttons(dialog, "Copy to folder")
    if await dialog and folder_field.value:
        arguments = ["history", "download", f"--run={run.id}", f"--directory={folder_field.value}"]
        operation = await run_operation(context.backend, "Copy outputs", *arguments, cwd=root, notify=False)
        if not operation.failed:
            ui.notify(f"copied outputs to {plain(str(folder_field.value), 300)}", type="positive", timeout=8000)
        await context.refresh()


async def diagnostics(context: RunPageContext) -> None:
    """Create a zip file for troubleshooting."""
    run = context.run
    _, unknown = await context.backend.call(lambda _history: known_values(run.spec.secrets))
    with titled_dialog("Diagnostics") as dialog:
        ui.label("A zip file with the code, log, events, and metadata of this run, for troubleshooting.")
        ui.label("Known secret values are masked.")
        for warning in sharing_warnings(unknown):
            ui.label(f"Warning: {plain(warning, 300)}").classes("mlw-warn mlw-said")
        _download_link("Download as zip", f"{context.api}/diagnostics.zip", dialog)
        ui.separator()
        ui.label("Or save it to a file on the machine that runs mlw ui.")
        file_field = _text_field("File", str(Path.home() / f"diagnostics-{run.id}.zip"))
        ui.label(f"mlw experiment diagnostics {plain(run.id, 100)}").classes("mlw-mono mlw-faint mlw-said")
        dialog_buttons(dialog, "Save file")
    if await dialog and file_field.value:
        arguments = ["experiment", "diagnostics", f"--run={run.id}", f"--to={file_field.value}", "--yes"]
        operation = await run_operation(context.backend, "Diagnostics", *arguments, notify=False)
        if not operation.failed and operation.lines:
            ui.notify(plain(operation.lines[-1], 300), type="positive", timeout=8000)


def _download_link(label: str, address: str, dialog: ui.dialog) -> None:
    """Add a link that starts a browser download."""
    with ui.link(target=address).props("download").classes("mlw-download") as link:
        ui.icon("download").props("aria-hidden=true")
        ui.label(label)
    link.on("click", lambda: dialog.submit(None))


async def promote(context: RunPageContext, path: str) -> None:
    """Save an output as an asset."""
    run = context.run
    default_name = path.rpartition("/")[2].partition(".")[0]
    with titled_dialog("Save as asset") as dialog:
        ui.label(f"Saves {plain(path, 200)} under a name and adds assets/NAME.link to the project.")
        name = _text_field("Name", default_name)
        ui.label(f"mlw history promote --run {plain(run.id, 100)} --artifact-path PATH --name NAME").classes(
            "mlw-mono mlw-faint mlw-said"
        )
        dialog_buttons(dialog, "Save")
    if await dialog and name.value:
        arguments = ["history", "promote", f"--run={run.id}", f"--artifact-path=outputs/{path}", f"--name={name.value}"]
        root = await _project_root(context)
        operation = await run_operation(context.backend, "Save as asset", *arguments, cwd=root, notify=False)
        if not operation.failed:
            link = f"assets/{name.value}.link"
            address = f"/p/{key_of(root)}/files?path={quote(link, safe='')}" if root else None
            message = f"Saved as asset {name.value}; added {link} to the project. To list assets, run: mlw asset list"
            _show_done(message, "Show in Files", lambda: ui.navigate.to(address) if address else None)


async def _project_root(context: RunPageContext) -> Path | None:
    """Return the run's project folder if it still exists."""
    run = context.run
    return await context.backend.call(lambda _history: code.project_of(run))


def _text_field(label: str, value: str) -> ui.input:
    field = ui.input(label, value=value).props("outlined dense").classes("mlw-dialog-field")
    field._props["maxlength"] = _MAX_LENGTH
    return field
