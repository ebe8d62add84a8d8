"""Two dialogs: open a folder of this machine, and create a project from a sample."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nicegui import ui

from ...config.project import find_project
from ...errors import MlwError
from ...report.plain import plain
from ..answers.folders import Typed, complete, is_project, the_folder
from ..desk import Desk
from .trouble import telling


class FolderField:
    """A typed path, with the folders that it may become below it."""

    def __init__(self, desk: Desk, label: str, value: str, *, inside: bool = False) -> None:
        """``inside``: something is made in it, and what it is itself does not matter."""
        self._desk = desk
        self._inside = inside
        self._turn = 0
        self.typed: Typed | None = None
        self.input = ui.input(label, value=value, on_change=self._changed).props("outlined dense debounce=120")
        self.input.classes("mlw-mono mlw-full")
        self._said = ui.label("").classes("mlw-faint mlw-small").props("role=status")
        self._box = ui.element("div").classes("mlw-places").props('role=group aria-label="Folders"')
        ui.timer(0.01, self._changed, once=True)

    @property
    def value(self) -> str:
        return self.input.value or ""

    async def _changed(self) -> None:
        self._turn += 1
        turn, text = self._turn, self.value
        try:
            typed = await self._desk.ask(lambda _: complete(text))
        except MlwError as error:
            self._said.text = plain(error.message, 300)
            return
        if turn == self._turn:
            self._show(typed)

    def _show(self, typed: Typed) -> None:
        self.typed = typed
        self._said.text = plain(typed.trouble or self._words(typed), 300)
        self._box.clear()
        with self._box:
            for place in typed.places:
                button = ui.button(plain(place.name, 80), on_click=lambda path=place.path: self._take(path))
                button.props("flat dense no-caps align=left").classes("mlw-place-choice")
                button.props("icon=folder_special" if place.project else "icon=folder")

    def _words(self, typed: Typed) -> str:
        if not typed.exists:
            return "folder does not exist"
        if self._inside:
            return ""
        return f"{typed.path} is a project" if typed.project else f"{typed.path} is not a project yet"

    def _take(self, path: str) -> None:
        self.input.value = path + os.sep


def _start() -> str:
    return os.path.expanduser("~") + os.sep


def _dialog(label: str) -> ui.dialog:
    dialog = ui.dialog()
    dialog._props["aria-label"] = label
    dialog.on("hide", dialog.delete)
    return dialog


async def open_dialog(desk: Desk) -> None:
    """A project is opened, a folder that is none becomes one if that is wanted."""

    async def go() -> None:
        with telling():
            folder = await desk.ask(lambda _: the_folder(field.value))
            if not await desk.ask(lambda _: is_project(str(folder))):
                ask.set_visibility(True)
                question.text = f"{plain(str(folder), 300)} is not a project yet."
                return
            await _enter(desk, folder)

    async def adopt() -> None:
        with telling():
            folder = await desk.ask(lambda _: the_folder(field.value))
            await desk.errands.do("project", "init", f"--path={folder}", cwd=folder)
            await _enter(desk, folder)

    with _dialog("Open folder") as dialog, ui.card().classes("mlw-card mlw-newproject"):
        ui.label("Open folder").classes("mlw-empty-title")
        field = FolderField(desk, "Folder on this machine", _start())
        field.input.props("autofocus").on("keydown.enter", go)
        with ui.column().classes("mlw-banner mlw-column").props("role=alert") as ask:
            question = ui.label("").classes("mlw-said")
            ui.label("Initializing adds aml_config and an ignore file; it does not change your files.")
            ui.button("Initialize project", on_click=adopt).props("unelevated no-caps dense")
            ui.label("mlw project init").classes("mlw-mono mlw-faint mlw-small")
        ask.set_visibility(False)
        with ui.row():
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Open", on_click=go).props("unelevated no-caps")
    dialog.open()


async def _enter(desk: Desk, folder: Path) -> None:
    known = await desk.ask(lambda _: desk.projects.remember(find_project(folder).root))
    ui.navigate.to(f"/p/{known.key}")


class Samples:
    """Tiles to choose from."""

    def __init__(self, samples: list[dict[str, Any]]) -> None:
        self._samples = samples
        self.chosen = str(samples[0]["name"]) if samples else "default"
        ui.input("Search samples", on_change=lambda event: self._show(event.value)).props("outlined dense clearable")
        self._box = ui.element("div").classes("mlw-tiles").props('role=radiogroup aria-label="Sample"')
        self._show("")

    def _show(self, text: str | None) -> None:
        wanted = (text or "").casefold()
        self._box.clear()
        with self._box:
            for one in self._samples:
                name, words = str(one.get("name") or ""), str(one.get("description") or "")
                if wanted in f"{name} {words}".casefold():
                    self._tile(name, words)

    def _tile(self, name: str, words: str) -> None:
        is_it = name == self.chosen
        with ui.element("button").classes("mlw-tile" + (" mlw-tile-here" if is_it else "")) as tile:
            ui.label(plain(name, 60)).classes("mlw-strong")
            ui.label(plain(words, 300)).classes("mlw-faint mlw-small")
        tile._props["type"] = "button"
        tile._props["role"] = "radio"
        tile._props["aria-checked"] = "true" if is_it else "false"
        tile.on("click", lambda: self._choose(name))

    def _choose(self, name: str) -> None:
        self.chosen = name
        self._show("")


async def create_dialog(desk: Desk) -> None:
    with telling():
        samples = await desk.errands.do("project", "sample", "list", "--output", "json", cwd=desk.paths.home)
        known = await desk.ask(lambda _: desk.projects.known())
        parent = str(known[0].path.parent) + os.sep if known else _start()
        _create(desk, samples if isinstance(samples, list) else [], parent)


def _create(desk: Desk, samples: list[dict[str, Any]], parent: str) -> None:
    async def go() -> None:
        with telling():
            folder = await desk.ask(lambda _: the_folder(field.value))
            words = (f"--name={name.value or ''}", f"--path={folder}", f"--template={tiles.chosen}")
            await desk.errands.do("project", "create", *words, cwd=folder)
            await _enter(desk, folder / str(name.value))

    with _dialog("Create project") as dialog, ui.card().classes("mlw-card mlw-newproject"):
        ui.label("Create project").classes("mlw-empty-title")
        name = ui.input("Name").props("outlined dense autofocus").classes("mlw-full")
        name.on("keydown.enter", go)
        field = FolderField(desk, "Parent folder", parent, inside=True)
        tiles = Samples(samples)
        with ui.row():
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Create", on_click=go).props("unelevated no-caps")
        ui.label("mlw project create --name NAME").classes("mlw-mono mlw-faint mlw-small")
    dialog.open()
