"""What is done with the files of a run: each asks, and is carried out by the command line."""

from __future__ import annotations

from pathlib import Path

from nicegui import ui

from ....report.plain import plain
from ...answers import code
from ...parts.errand import carried_out
from ...parts.rundialogs import answers_of, asking
from .context import Context

_LONGEST = 4000


async def restore(context: Context) -> None:
    """The code of the run, in a new folder or in the project itself."""
    run = context.run
    root = await _root(context)
    beside = f"{root or run.spec.project_path}-{run.id}"
    with asking("Restore the code of this run") as dialog:
        ui.label("All files of the project as they were when the run was submitted.")
        options = {"new": "Into a new folder"}
        if root is not None:
            options["place"] = "Into the project itself, if nothing would be lost"
        how = ui.radio(options, value="new").props("dense")
        place = _line("New folder", beside).bind_visibility_from(how, "value", value="new")
        ui.label(f"mlw project restore --run-id {plain(run.id, 100)}").classes("mlw-mono mlw-faint mlw-said")
        answers_of(dialog, "Restore")
    if not await dialog:
        return
    words = ["project", "restore", f"--run-id={run.id}"]
    words += ["--in-place"] if how.value == "place" else [f"--path={place.value}"]
    errand = await carried_out(context.desk, "Restore", *words, cwd=root)
    if not errand.failed and errand.lines:
        ui.notify(plain(errand.lines[-1], 300), type="positive", timeout=8000)


async def download(context: Context) -> None:
    """The outputs, into a folder of this machine."""
    run = context.run
    root = await _root(context)
    with asking("Download the outputs") as dialog:
        ui.label("Copies all outputs into a folder of this machine; each file appears whole or not at all.")
        place = _line("Folder", str((root / "outputs" if root else Path.home()) / run.id))
        ui.label(f"mlw history download -r {plain(run.id, 100)} -d FOLDER").classes("mlw-mono mlw-faint mlw-said")
        answers_of(dialog, "Download")
    if await dialog and place.value:
        words = ["history", "download", f"--run={run.id}", f"--directory={place.value}"]
        errand = await carried_out(context.desk, "Download outputs", *words, cwd=root)
        if not errand.failed:
            ui.notify(f"the outputs are in {plain(str(place.value), 300)}", type="positive", timeout=8000)
        await context.again()


async def diagnostics(context: Context) -> None:
    """A zip with all that is needed to understand the run elsewhere."""
    run = context.run
    with asking("Diagnostics") as dialog:
        ui.label("A zip with the code, the log, the events and the facts of this run, for whoever is to help.")
        ui.label("Values of secrets are masked. Look into it before you pass it on.")
        place = _line("File", str(Path.home() / f"diagnostics-{run.id}.zip"))
        ui.label(f"mlw experiment diagnostics -r {plain(run.id, 100)}").classes("mlw-mono mlw-faint mlw-said")
        answers_of(dialog, "Write it")
    if await dialog and place.value:
        words = ["experiment", "diagnostics", f"--run={run.id}", f"--output={place.value}", "--yes"]
        errand = await carried_out(context.desk, "Diagnostics", *words)
        if not errand.failed and errand.lines:
            ui.notify(plain(errand.lines[-1], 300), type="positive", timeout=8000)


async def promote(context: Context, path: str) -> None:
    """Keep an output as an asset."""
    run = context.run
    guess = path.rpartition("/")[2].partition(".")[0]
    with asking("Keep as an asset") as dialog:
        ui.label(f"Keeps {plain(path, 200)} under a name, and writes assets/NAME.link into the project.")
        name = _line("Name", guess)
        ui.label(f"mlw history promote -r {plain(run.id, 100)} -ap PATH -n NAME").classes("mlw-mono mlw-faint mlw-said")
        answers_of(dialog, "Keep it")
    if await dialog and name.value:
        words = ["history", "promote", f"--run={run.id}", f"--artifact-path=outputs/{path}", f"--name={name.value}"]
        await carried_out(context.desk, "Keep as an asset", *words, cwd=await _root(context))


async def _root(context: Context) -> Path | None:
    """The project that the run came from, if it is still there."""
    run = context.run
    return await context.desk.ask(lambda _history: code.project_of(run))


def _line(label: str, value: str) -> ui.input:
    field = ui.input(label, value=value).props("outlined dense").classes("mlw-dialog-field")
    field._props["maxlength"] = _LONGEST
    return field
