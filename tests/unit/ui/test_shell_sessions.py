"""Terminal view with a real shell: it survives long silence and suspended pages."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path

import pytest
from nicegui import Client, ui

from mlworkbench.ui.components import terminal_view
from mlworkbench.ui.shell_sessions import Shell

if os.name != "posix":
    pytest.skip("no command prompt on Windows", allow_module_level=True)


class View(terminal_view.TerminalView):
    """A page that shows the output unless it is suspended. As in terminal.js, nothing is shown twice."""

    def __init__(self, shell):
        super().__init__(shell)
        self.shown, self.position, self.calls, self.suspended = b"", 0, 0, False

    async def run_method(self, name, data, begin, again, *, timeout):
        self.calls += 1
        if self.suspended:
            raise TimeoutError
        data = base64.b64decode(data)
        self.shown += data[max(0, self.position - begin) :]
        self.position = max(self.position, begin + len(data))


async def wait_until(condition):
    async def waiting():
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(waiting(), 20)


def run_scenario(scenario, monkeypatch):
    monkeypatch.setattr(terminal_view, "CHECK_INTERVAL", 0.05)

    async def play():
        shell = Shell("k", 1, "hello\r\n")
        await shell.start(["/bin/cat"], Path("/"), {"PATH": os.defpath})
        with Client(ui.page("/nowhere"), request=None) as client:
            view = View(shell)
            pouring = asyncio.ensure_future(view._stream_output())
            try:
                await scenario(shell, view, client, pouring)
            finally:
                shell.close()
                client.delete()
                await pouring

    asyncio.run(play())


def test_terminal_survives_long_silence(monkeypatch):
    async def scenario(shell, view, client, pouring):
        await wait_until(lambda: b"hello" in view.shown)
        looks, news = [], shell.wait_for_output

        async def counted():
            looks.append(1)
            await news()

        shell.wait_for_output = counted
        shell.write("first\n")
        await wait_until(lambda: b"first" in view.shown and len(looks) > 3)
        shell.write("second\n")
        await wait_until(lambda: b"second" in view.shown)
        assert not pouring.done()

    run_scenario(scenario, monkeypatch)


def test_suspended_page_gets_missed_output(monkeypatch):
    async def scenario(shell, view, client, pouring):
        await wait_until(lambda: b"hello" in view.shown)
        awake = asyncio.Event()
        client.connected = awake.wait
        view.suspended = True
        before = view.calls
        shell.write("said while it slept\n")
        await wait_until(lambda: view.calls > before)
        shell.write("x" * 1000 + "\n")
        await wait_until(lambda: shell.position > 1000)
        assert not shell._views, "the shell does not wait for it"
        view.suspended = False
        awake.set()
        await wait_until(lambda: view.shown.endswith(b"x\r\n"))
        assert view.shown == shell.read(0)[0]
        shell.close()
        await wait_until(pouring.done)
        assert view.shown.endswith(b"(the shell has ended)\r\n")

    run_scenario(scenario, monkeypatch)
