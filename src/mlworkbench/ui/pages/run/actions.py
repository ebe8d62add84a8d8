"""What is done with the files of a run: each asks, and is carried out by the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from nicegui import ui

from ....report.plain import plain
from ....runfiles.diagnostics import sharing_warnings
from ....runfiles.restore import proposed_place
from ....secret import known_values
from ...answers import code, outputs
from ...answers.projects import key_of
from ...parts.errand import carried_out
from ...parts.rundialogs import answers_of, asking
from ...parts.trouble import telling
from .context import Context

_LONGEST = 4000


async def restore(context: Context) -> None:
    """The code of the run, in a new folder or in the project itself."""
    run = context.run
    root = await _root(context)
    beside = proposed_place(run, str(root or run.spec.project_path))
    with asking("Restore the code of this run") as dialog:
        ui.label("Restores all project files as they were when the run was submitted.")
        options = {"new": "To a new folder"}
        if root is not None:
            options["place"] = "In the project folder, if no changes would be lost"
        how = ui.radio(options, value="new").props("dense")
        place = _line("New folder", beside).bind_visibility_from(how, "value", value="new")
        ui.label(f"mlw project restore --run-id {plain(run.id, 100)}").classes("mlw-mono mlw-faint mlw-said")
        answers_of(dialog, "Restore")
    if not await dialog:
        return
    words = ["project", "restore", f"--run-id={run.id}"]
    words += ["--in-place"] if how.value == "place" else [f"--path={place.value}"]
    errand = await carried_out(context.desk, "Restore", *words, cwd=root, telling=False)
    if errand.failed:
        return
    folder = root if how.value == "place" and root else Path(place.value)
    folder = folder if folder.is_absolute() or root is None else root / folder

    async def visit() -> None:
        with telling():
            known = await context.desk.ask(lambda _: context.desk.projects.remember(folder))
            ui.navigate.to(f"/p/{known.key}")

    _done(errand.lines[-1] if errand.lines else "Code restored", "Open project", visit)


def _done(words: str, more: str, act: Callable[[], object]) -> None:
    """What was done, and where to go from there; the page below can be used meanwhile."""
    with ui.context.client, ui.card().classes("mlw-card mlw-done") as box:  # what was clicked may be drawn anew
        ui.icon("check_circle").props("aria-hidden=true").classes("mlw-good")
        ui.label(plain(words, 400)).classes("mlw-said mlw-done-words").props("role=status")
        ui.button(more, on_click=act).props("flat dense no-caps")
        ui.button("Close", on_click=box.delete, color=None).props("flat dense no-caps").classes("mlw-action")


async def download(context: Context) -> None:
    """The outputs: to whoever looks, as a zip, or into a folder of the machine that mlw ui runs on."""
    run = context.run
    root = await _root(context)
    found = await context.desk.ask(outputs.is_home, run.id)
    with asking("Download outputs") as dialog:
        if found or not run.status.final:
            _link("Download as zip", f"{context.api}/outputs.zip", dialog)
            ui.label(
                "All outputs in one file, downloaded by the browser." if found else "All outputs so far, in one file."
            )
        else:
            ui.label(
                "The outputs are still on the target. Copy them to a folder to fetch them to this machine."
            ).classes("mlw-warn")
        ui.separator()
        ui.label("Or copy them to a folder on the machine that runs mlw ui.")
        place = _line("Folder", str((root / "outputs" if root else Path.home()) / run.id))
        ui.label(f"mlw history download {plain(run.id, 100)} --directory FOLDER").classes("mlw-mono mlw-faint mlw-said")
        answers_of(dialog, "Copy to folder")
    if await dialog and place.value:
        words = ["history", "download", f"--run={run.id}", f"--directory={place.value}"]
        errand = await carried_out(context.desk, "Copy outputs", *words, cwd=root, telling=False)
        if not errand.failed:
            ui.notify(f"copied outputs to {plain(str(place.value), 300)}", type="positive", timeout=8000)
        await context.again()


async def diagnostics(context: Context) -> None:
    """A zip with all that is needed to understand the run elsewhere."""
    run = context.run
    _, unknown = await context.desk.ask(lambda _history: known_values(run.spec.secrets))
    with asking("Diagnostics") as dialog:
        ui.label("A zip file with the code, log, events, and metadata of this run, for troubleshooting.")
        ui.label("Known secret values are masked.")
        for warning in sharing_warnings(unknown):
            ui.label(f"Warning: {plain(warning, 300)}").classes("mlw-warn mlw-said")
        _link("Download as zip", f"{context.api}/diagnostics.zip", dialog)
        ui.separator()
        ui.label("Or save it to a file on the machine that runs mlw ui.")
        place = _line("File", str(Path.home() / f"diagnostics-{run.id}.zip"))
        ui.label(f"mlw experiment diagnostics {plain(run.id, 100)}").classes("mlw-mono mlw-faint mlw-said")
        answers_of(dialog, "Save file")
    if await dialog and place.value:
        words = ["experiment", "diagnostics", f"--run={run.id}", f"--to={place.value}", "--yes"]
        errand = await carried_out(context.desk, "Diagnostics", *words, telling=False)
        if not errand.failed and errand.lines:
            ui.notify(plain(errand.lines[-1], 300), type="positive", timeout=8000)


def _link(words: str, address: str, dialog: ui.dialog) -> None:
    """A link, so that the browser's own download takes over."""
    with ui.link(target=address).props("download").classes("mlw-download") as link:
        ui.icon("download").props("aria-hidden=true")
        ui.label(words)
    link.on("click", lambda: dialog.submit(None))


async def promote(context: Context, path: str) -> None:
    """Keep an output as an asset."""
    run = context.run
    guess = path.rpartition("/")[2].partition(".")[0]
    with asking("Save as asset") as dialog:
        ui.label(f"Saves {plain(path, 200)} under a name and adds assets/NAME.link to the project.")
        name = _line("Name", guess)
        ui.label(f"mlw history promote --run {plain(run.id, 100)} --artifact-path PATH --name NAME").classes(
            "mlw-mono mlw-faint mlw-said"
        )
        answers_of(dialog, "Save")
    if await dialog and name.value:
        words = ["history", "promote", f"--run={run.id}", f"--artifact-path=outputs/{path}", f"--name={name.value}"]
        root = await _root(context)
        errand = await carried_out(context.desk, "Save as asset", *words, cwd=root, telling=False)
        if not errand.failed:
            link = f"assets/{name.value}.link"
            where = f"/p/{key_of(root)}/files?path={quote(link, safe='')}" if root else None
            said = f"Saved as asset {name.value}; added {link} to the project. To list assets, run: mlw asset list"
            _done(said, "Show in Files", lambda: ui.navigate.to(where) if where else None)


async def _root(context: Context) -> Path | None:
    """The project that the run came from, if it is still there."""
    run = context.run
    return await context.desk.ask(lambda _history: code.project_of(run))


def _line(label: str, value: str) -> ui.input:
    field = ui.input(label, value=value).props("outlined dense").classes("mlw-dialog-field")
    field._props["maxlength"] = _LONGEST
    return field
