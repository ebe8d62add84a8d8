"""Dialogs that open a folder on this machine, or create a project from a sample."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nicegui import ui

from ...config.project_folder import find_project
from ...errors import MlwError
from ...sanitize import plain
from ..backend import Backend
from ..queries.folder_suggestions import TypedPath, is_project, resolve_folder, suggest_folders
from .error_notice import report_errors


class FolderField:
    """Path field with folder suggestions below it."""

    def __init__(self, backend: Backend, label: str, value: str, *, is_parent: bool = False) -> None:
        """Create the field.

        With ``is_parent``, the folder is where something will be created, so the field does not report
        whether it is a project.
        """
        self._backend = backend
        self._is_parent = is_parent
        self._request_number = 0
        self.typed: TypedPath | None = None
        self.input = ui.input(label, value=value, on_change=self._changed).props("outlined dense debounce=120")
        self.input.classes("mlw-mono mlw-full")
        self._status = ui.label("").classes("mlw-faint mlw-small").props("role=status")
        self._box = ui.element("div").classes("mlw-places").props('role=group aria-label="Folders"')
        ui.timer(0.01, self._changed, once=True)

    @property
    def value(self) -> str:
        return self.input.value or ""

    async def _changed(self) -> None:
        self._request_number += 1
        number, text = self._request_number, self.value
        try:
            typed = await self._backend.call(lambda _: suggest_folders(text))
        except MlwError as error:
            self._status.text = plain(error.message, 300)
            return
        if number == self._request_number:
            self._show(typed)

    def _show(self, typed: TypedPath) -> None:
        self.typed = typed
        self._status.text = plain(typed.trouble or self._describe(typed), 300)
        self._box.clear()
        with self._box:
            for folder in typed.places:
                button = ui.button(plain(folder.name, 80), on_click=lambda path=folder.path: self._set_path(path))
                button.props("flat dense no-caps align=left").classes("mlw-place-choice")
                button.props("icon=folder_special" if folder.project else "icon=folder")

    def _describe(self, typed: TypedPath) -> str:
        if not typed.exists:
            return "folder does not exist"
        if self._is_parent:
            return ""
        return f"{typed.path} is a project" if typed.project else f"{typed.path} is not a project yet"

    def _set_path(self, path: str) -> None:
        self.input.value = path + os.sep


def _home_folder() -> str:
    return os.path.expanduser("~") + os.sep


def _dialog(label: str) -> ui.dialog:
    dialog = ui.dialog()
    dialog._props["aria-label"] = label
    dialog.on("hide", dialog.delete)
    return dialog


async def open_dialog(backend: Backend) -> None:
    """Open a project. Offer to initialize a folder that is not a project yet."""

    async def open_folder() -> None:
        with report_errors():
            folder = await backend.call(lambda _: resolve_folder(field.value))
            if not await backend.call(lambda _: is_project(str(folder))):
                question_box.set_visibility(True)
                question.text = f"{plain(str(folder), 300)} is not a project yet."
                return
            await _open_project(backend, folder)

    async def initialize() -> None:
        with report_errors():
            folder = await backend.call(lambda _: resolve_folder(field.value))
            await backend.operations.run("project", "init", f"--path={folder}", cwd=folder)
            await _open_project(backend, folder)

    with _dialog("Open folder") as dialog, ui.card().classes("mlw-card mlw-newproject"):
        ui.label("Open folder").classes("mlw-empty-title")
        field = FolderField(backend, "Folder on this machine", _home_folder())
        field.input.props("autofocus").on("keydown.enter", open_folder)
        with ui.column().classes("mlw-banner mlw-column").props("role=alert") as question_box:
            question = ui.label("").classes("mlw-said")
            ui.label("Initializing adds aml_config and an ignore file; it does not change your files.")
            ui.button("Initialize project", on_click=initialize).props("unelevated no-caps dense")
            ui.label("mlw project init").classes("mlw-mono mlw-faint mlw-small")
        question_box.set_visibility(False)
        with ui.row():
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Open", on_click=open_folder).props("unelevated no-caps")
    dialog.open()


async def _open_project(backend: Backend, folder: Path) -> None:
    project = await backend.call(lambda _: backend.projects.add(find_project(folder).root))
    ui.navigate.to(f"/p/{project.key}")


class SampleTiles:
    """Searchable tiles to choose a sample from."""

    def __init__(self, samples: list[dict[str, Any]]) -> None:
        self._samples = samples
        self.chosen = str(samples[0]["name"]) if samples else "default"
        ui.input("Search samples", on_change=lambda event: self._show(event.value)).props("outlined dense clearable")
        self._box = ui.element("div").classes("mlw-tiles").props('role=radiogroup aria-label="Sample"')
        self._show("")

    def _show(self, text: str | None) -> None:
        query = (text or "").casefold()
        self._box.clear()
        with self._box:
            for sample in self._samples:
                name, description = str(sample.get("name") or ""), str(sample.get("description") or "")
                if query in f"{name} {description}".casefold():
                    self._tile(name, description)

    def _tile(self, name: str, description: str) -> None:
        is_selected = name == self.chosen
        with ui.element("button").classes("mlw-tile" + (" mlw-tile-here" if is_selected else "")) as tile:
            ui.label(plain(name, 60)).classes("mlw-strong")
            ui.label(plain(description, 300)).classes("mlw-faint mlw-small")
        tile._props["type"] = "button"
        tile._props["role"] = "radio"
        tile._props["aria-checked"] = "true" if is_selected else "false"
        tile.on("click", lambda: self._choose(name))

    def _choose(self, name: str) -> None:
        self.chosen = name
        self._show("")


async def create_dialog(backend: Backend) -> None:
    with report_errors():
        samples = await backend.operations.run("project", "sample", "list", "--output", "json", cwd=backend.paths.home)
        projects = await backend.call(lambda _: backend.projects.recent())
        parent = str(projects[0].path.parent) + os.sep if projects else _home_folder()
        _create(backend, samples if isinstance(samples, list) else [], parent)


def _create(backend: Backend, samples: list[dict[str, Any]], parent: str) -> None:
    async def create() -> None:
        with report_errors():
            folder = await backend.call(lambda _: resolve_folder(field.value))
            arguments = (f"--name={name.value or ''}", f"--path={folder}", f"--template={tiles.chosen}")
            await backend.operations.run("project", "create", *arguments, cwd=folder)
            await _open_project(backend, folder / str(name.value))

    with _dialog("Create project") as dialog, ui.card().classes("mlw-card mlw-newproject"):
        ui.label("Create project").classes("mlw-empty-title")
        name = ui.input("Name").props("outlined dense autofocus").classes("mlw-full")
        name.on("keydown.enter", create)
        field = FolderField(backend, "Parent folder", parent, is_parent=True)
        tiles = SampleTiles(samples)
        with ui.row():
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Create", on_click=create).props("unelevated no-caps")
        ui.label("mlw project create --name NAME").classes("mlw-mono mlw-faint mlw-small")
    dialog.open()
