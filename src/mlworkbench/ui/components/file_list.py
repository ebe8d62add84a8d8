"""List of files and folders. The browser renders it, so hundreds of entries are fast."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from nicegui.element import Element
from nicegui.events import GenericEventArguments


@dataclass(frozen=True)
class Row:
    """List entry. ``path`` stays on the server; the other fields are sent to the browser."""

    path: str
    name: str
    icon: str
    note: str
    labels: tuple[str, ...] = ()


class FileList(Element, component="filelist.js"):
    """List that calls ``on_choose`` with the path of the clicked entry."""

    def __init__(self, on_choose: Callable[[str], Awaitable[None]]) -> None:
        super().__init__()
        self._on_choose = on_choose
        self.show([], "")
        self.on("choose", self._handle_choose)

    def show(self, rows: Sequence[Row], selected: str) -> None:
        self._paths = [row.path for row in rows]
        self._props["rows"] = [
            {"name": row.name, "icon": row.icon, "note": row.note, "words": list(row.labels)} for row in rows
        ]
        self.select(selected)

    def select(self, selected: str) -> None:
        self._props["chosen"] = self._paths.index(selected) if selected in self._paths else -1
        self.update()

    async def _handle_choose(self, event: GenericEventArguments) -> None:
        index = event.args
        if isinstance(index, int) and 0 <= index < len(self._paths):  # do not trust values from a browser
            await self._on_choose(self._paths[index])
