"""The environments that were built on a machine, with their sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nicegui import ui

from ....errors import MlwError
from ....report import units
from ....report.plain import plain
from ...answers import words
from ...desk import Desk
from ...parts.errand import carried_out
from ...parts.frame import Here
from ...parts.trouble import in_words
from ...parts.when import When
from .dialogs import Box

_SHORT = 12
_COLUMNS = ("Environment", "Python", "Packages", "Size", "Unshared size", "Last used", "State", "")


class EnvironmentsDialog(Box):
    """``target``: None is this machine."""

    def __init__(self, desk: Desk, where: Here, target: str | None) -> None:
        super().__init__(f"Environments on {target or 'this machine'}")
        self._desk, self._where, self._target = desk, where, target
        with self.buttons:
            ui.button("Remove unused", icon="delete_sweep", on_click=self._remove_unused).props("flat no-caps")

    async def look(self) -> None:
        self.open()
        await self._fill()

    async def _fill(self) -> None:
        said = words.environments_words(self._target)
        self.body.clear()
        with self.body, ui.row().classes("mlw-errand-head") as waiting:
            ui.spinner(size="18px").props("aria-hidden=true")
            ui.label("Calculating sizes…").props("role=status")
        try:
            found = await self._desk.errands.do(*said, cwd=self._where.project.root)
        except MlwError as error:
            message, hint = in_words(error)
            waiting.delete()
            with self.body:
                ui.label(message).classes("mlw-bad mlw-said")
                ui.label(hint or "").classes("mlw-said")
            return
        waiting.delete()
        with self.body:
            command = "mlw environment list" + (f" --target {plain(self._target, 100)}" if self._target else "")
            ui.label(command).classes("mlw-mono mlw-faint")
            if found:
                self._table(found)
            else:
                ui.label("No environments yet. The first run that needs one builds it, or click Prepare.").classes(
                    "mlw-faint"
                )

    def _table(self, found: Sequence[Mapping[str, Any]]) -> None:
        with ui.element("table").classes("mlw-plain-table"):
            with ui.element("thead"), ui.element("tr"):
                for name in _COLUMNS:
                    with ui.element("th").props("scope=col"):
                        ui.label(name)
            with ui.element("tbody"):
                for one in found:
                    with ui.element("tr"):
                        self._row(one)

    def _row(self, one: Mapping[str, Any]) -> None:
        digest = str(one.get("digest"))
        texts = [digest[:_SHORT], str(one.get("python") or ""), str(one.get("packages") or ""), _size(one.get("bytes"))]
        for text in (*texts, _size(one.get("own_bytes"))):
            with ui.element("td"):
                ui.label(plain(text, 60))
        with ui.element("td"):
            used = _moment(one.get("last_used_utc"))
            if used is not None:
                When(used)
        with ui.element("td"):
            ui.label(plain(str(one.get("state") or ""), 100))
        with ui.element("td"):
            button = ui.button(icon="delete", on_click=lambda: self._remove(digest)).props("flat dense round")
            button._props["aria-label"] = f"Remove environment {plain(digest[:_SHORT], 20)}"

    async def _remove(self, digest: str) -> None:
        await self._do(f"Remove {digest[:_SHORT]}", words.remove_environments_words(self._target, [digest]))

    async def _remove_unused(self) -> None:
        await self._do("Remove unused", words.remove_environments_words(self._target, unused=True))

    async def _do(self, title: str, said: list[str]) -> None:
        await carried_out(self._desk, title, *said, cwd=self._where.project.root)
        await self._fill()


def _size(count: object) -> str:
    return units.size(count) if isinstance(count, (int, float)) else ""


def _moment(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None
