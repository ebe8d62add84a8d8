"""Files and folders to choose from. The browser draws them, so hundreds are quick."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from nicegui.element import Element
from nicegui.events import GenericEventArguments


@dataclass(frozen=True)
class Row:
    """``path`` stays here, as it is; all else is shown."""

    path: str
    name: str
    icon: str
    note: str
    words: tuple[str, ...] = ()


class FileList(Element, component="filelist.js"):
    """``then`` gets the path of what was clicked."""

    def __init__(self, then: Callable[[str], Awaitable[None]]) -> None:
        super().__init__()
        self._then = then
        self.show([], "")
        self.on("choose", self._chosen)

    def show(self, rows: Sequence[Row], chosen: str) -> None:
        self._paths = [one.path for one in rows]
        self._props["rows"] = [
            {"name": one.name, "icon": one.icon, "note": one.note, "words": list(one.words)} for one in rows
        ]
        self.choose(chosen)

    def choose(self, chosen: str) -> None:
        self._props["chosen"] = self._paths.index(chosen) if chosen in self._paths else -1
        self.update()

    async def _chosen(self, event: GenericEventArguments) -> None:
        at = event.args
        if isinstance(at, int) and 0 <= at < len(self._paths):  # it comes from a browser
            await self._then(self._paths[at])
