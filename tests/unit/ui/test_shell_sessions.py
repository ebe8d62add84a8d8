"""A terminal before a real shell: neither a silent hour nor a page that sleeps ends what it shows."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path

import pytest
from nicegui import Client, ui

from mlworkbench.ui.parts import terminal
from mlworkbench.ui.shells import Shell

if os.name != "posix":
    pytest.skip("no command prompt on Windows", allow_module_level=True)


class View(terminal.TerminalView):
    """A page that shows what it is sent, unless it sleeps. As in terminal.js, nothing is shown twice."""

    def __init__(self, shell):
        super().__init__(shell)
        self.shown, self.place, self.asked, self.sleeps = b"", 0, 0, False

    async def run_method(self, name, data, begin, again, *, timeout):
        self.asked += 1
        if self.sleeps:
            raise TimeoutError
        data = base64.b64decode(data)
        self.shown += data[max(0, self.place - begin) :]
        self.place = max(self.place, begin + len(data))


async def until(condition):
    async def waiting():
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(waiting(), 20)


def played(story, monkeypatch):
    monkeypatch.setattr(terminal, "SILENCE", 0.05)

    async def play():
        shell = Shell("k", 1, "hello\r\n")
        await shell.start(["/bin/cat"], Path("/"), {"PATH": os.defpath})
        with Client(ui.page("/nowhere"), request=None) as client:
            view = View(shell)
            pouring = asyncio.ensure_future(view._pour())
            try:
                await story(shell, view, client, pouring)
            finally:
                shell.close()
                client.delete()
                await pouring

    asyncio.run(play())


def test_a_long_silence(monkeypatch):
    async def story(shell, view, client, pouring):
        await until(lambda: b"hello" in view.shown)
        looks, news = [], shell.news

        async def counted():
            looks.append(1)
            await news()

        shell.news = counted
        shell.type("first\n")
        await until(lambda: b"first" in view.shown and len(looks) > 3)
        shell.type("second\n")
        await until(lambda: b"second" in view.shown)
        assert not pouring.done()

    played(story, monkeypatch)


def test_a_page_that_sleeps(monkeypatch):
    async def story(shell, view, client, pouring):
        await until(lambda: b"hello" in view.shown)
        awake = asyncio.Event()
        client.connected = awake.wait
        view.sleeps = True
        before = view.asked
        shell.type("said while it slept\n")
        await until(lambda: view.asked > before)
        shell.type("x" * 1000 + "\n")
        await until(lambda: shell.said > 1000)
        assert not shell._views, "the shell does not wait for it"
        view.sleeps = False
        awake.set()
        await until(lambda: view.shown.endswith(b"x\r\n"))
        assert view.shown == shell.since(0)[0]
        shell.close()
        await until(pouring.done)
        assert view.shown.endswith(b"(the shell has ended)\r\n")

    played(story, monkeypatch)
