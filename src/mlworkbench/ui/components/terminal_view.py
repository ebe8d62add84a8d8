"""A terminal in the page, before one of the shells of the server."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from pathlib import Path
from typing import Any

import nicegui
from nicegui import background_tasks
from nicegui.element import Element

from ..shells import Shell

_XTERM = Path(nicegui.__file__).parent / "elements" / "xterm" / "dist"
PATIENCE = 20.0  # seconds for a page to show what it was sent
SILENCE = 60.0  # seconds between two looks whether the page is still there
_TYPED = 1 << 20  # characters of one message


class TerminalView(Element, component="terminal.js", esm={"nicegui-xterm": str(_XTERM)}):
    """Shows all that is kept of what the shell has said, and then what it says."""

    def __init__(self, shell: Shell) -> None:
        super().__init__()
        self.add_resource(_XTERM)
        self._shell = shell
        self._props["label"] = f"Terminal {shell.number}"
        self.on("typed", self._typed)
        self.on("size", self._size)
        self.on("ready", self._ready)

    def _typed(self, event: Any) -> None:
        if isinstance(event.args, str) and len(event.args) <= _TYPED:
            self._shell.type(event.args)

    def _size(self, event: Any) -> None:
        told = event.args
        if isinstance(told, dict) and all(isinstance(told.get(word), int) for word in ("columns", "rows")):
            self._shell.resize(told["columns"], told["rows"])

    def _ready(self, event: Any) -> None:
        self._size(event)
        background_tasks.create(self._pour())

    async def _pour(self) -> None:
        """As fast as the page shows it, and no faster. A page that sleeps gets the rest when it is back."""
        shell, view = self._shell, f"{self.client.id}-{self.id}"
        old, place = shell.said, 0
        try:
            while not self.is_deleted and not self.client.is_deleted:
                data, after = shell.since(place)
                if not data:
                    if shell.ended:
                        return
                    await _news(shell)
                    continue
                # The page drops what it was shown before: it may have shown what it never answered for.
                words = (base64.b64encode(data).decode(), after - len(data), after <= old)
                try:
                    await self.run_method("show", *words, timeout=PATIENCE)
                except (TimeoutError, asyncio.TimeoutError):
                    shell.leave(view)  # the shell does not wait for a page that sleeps
                    await self.client.connected()
                    continue
                place = after
                shell.read_to(view, place)
        finally:
            shell.leave(view)


async def _news(shell: Shell) -> None:
    """Or none for a while: then it is time to look whether the page is still there."""
    with suppress(TimeoutError, asyncio.TimeoutError):
        await asyncio.wait_for(shell.news(), SILENCE)
