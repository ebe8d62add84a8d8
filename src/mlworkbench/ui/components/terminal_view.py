"""Terminal connected to a shell on the server."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from pathlib import Path
from typing import Any

import nicegui
from nicegui import background_tasks
from nicegui.element import Element

from ..shell_sessions import Shell

_XTERM = Path(nicegui.__file__).parent / "elements" / "xterm" / "dist"
SHOW_TIMEOUT = 20.0  # seconds for a page to confirm output
CHECK_INTERVAL = 60.0  # seconds between checks that the page is still open
_MAX_TYPED = 1 << 20  # maximum number of characters in a message


class TerminalView(Element, component="terminal.js", esm={"nicegui-xterm": str(_XTERM)}):
    """Terminal that shows the shell's stored output, followed by new output."""

    def __init__(self, shell: Shell) -> None:
        super().__init__()
        self.add_resource(_XTERM)
        self._shell = shell
        self._props["label"] = f"Terminal {shell.number}"
        self.on("typed", self._on_typed)
        self.on("size", self._on_resize)
        self.on("ready", self._on_ready)

    def _on_typed(self, event: Any) -> None:
        if isinstance(event.args, str) and len(event.args) <= _MAX_TYPED:
            self._shell.write(event.args)

    def _on_resize(self, event: Any) -> None:
        size = event.args
        if isinstance(size, dict) and all(isinstance(size.get(name), int) for name in ("columns", "rows")):
            self._shell.resize(size["columns"], size["rows"])

    def _on_ready(self, event: Any) -> None:
        self._on_resize(event)
        background_tasks.create(self._stream_output())

    async def _stream_output(self) -> None:
        """Send output as fast as the page shows it. A suspended page gets the rest when it resumes."""
        shell, view = self._shell, f"{self.client.id}-{self.id}"
        stored, offset = shell.position, 0
        try:
            while not self.is_deleted and not self.client.is_deleted:
                data, end = shell.read(offset)
                if not data:
                    if shell.ended:
                        return
                    await _wait_for_output(shell)
                    continue
                # The position lets the page skip output that it has already shown but not confirmed.
                arguments = (base64.b64encode(data).decode(), end - len(data), end <= stored)
                try:
                    await self.run_method("show", *arguments, timeout=SHOW_TIMEOUT)
                except (TimeoutError, asyncio.TimeoutError):
                    shell.detach(view)  # the shell does not wait for a suspended page
                    await self.client.connected()
                    continue
                offset = end
                shell.acknowledge(view, offset)
        finally:
            shell.detach(view)


async def _wait_for_output(shell: Shell) -> None:
    """Wait for output, or until a timeout after which the caller checks that the page is still open."""
    with suppress(TimeoutError, asyncio.TimeoutError):
        await asyncio.wait_for(shell.wait_for_output(), CHECK_INTERVAL)
