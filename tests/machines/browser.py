"""A real Chromium, and `mlw ui` for it to look at."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Error, expect, sync_playwright

from tests.evidence import witnesses
from tests.machines.network import wait_until

# The shell without windows renders the same pages for half the CPU time; Playwright prefers it, too.
PROGRAMS = ("/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium")
DEAF = Path(__file__).parent / "deaf.py"
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",  # another site, as tests call it; it is nowhere else
)


class _Shared:
    """Playwright and one Chromium, started at the first use and kept until the test process ends."""

    def __init__(self) -> None:
        expect.set_options(timeout=30_000)  # as all other waits: on a loaded machine five seconds are little
        self._place = tempfile.TemporaryDirectory()
        self._playwright = sync_playwright().start()
        self._loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        self._starter = Path(self._place.name) / "chromium"
        program = next(filter(os.path.exists, PROGRAMS), PROGRAMS[-1])
        self._starter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{DEAF}" {program} "$@"\n')
        self._starter.chmod(0o755)
        with self._running():
            self._browser = self._playwright.chromium.launch(executable_path=self._starter, args=_ARGUMENTS)
        atexit.register(self.stop)

    @contextmanager
    def use(self) -> Iterator[Any]:
        """The browser. The contexts that are made in this block are closed at its end."""
        with self._running():
            before = list(self._browser.contexts)
            try:
                yield self._browser
            finally:
                with suppress(Error):  # whatever broke it has failed the test already; see is_alive
                    for context in self._browser.contexts:
                        if context not in before:
                            context.close()

    def is_alive(self) -> bool:
        """A timeout of a test may break the connection to Playwright, and a browser may crash."""
        with self._running():
            try:
                self._browser.new_browser_cdp_session().detach()
            except Error:
                return False
            return True

    def stop(self) -> None:
        atexit.unregister(self.stop)
        asyncio._set_running_loop(self._loop)
        try:
            self._browser.close()
        except Error:
            asyncio._set_running_loop(None)  # the loop has ended
        with suppress(Error):
            self._playwright.stop()
        asyncio._set_running_loop(None)
        self._place.cleanup()

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Playwright leaves its event loop running; other code may start one of its own outside of this block."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self._loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)


_shared: list[_Shared] = []


@contextmanager
def chromium() -> Iterator[Any]:
    """The Chromium of this test process; another one if it has died."""
    if _shared and not _shared[0].is_alive():
        _shared.pop().stop()
    if not _shared:
        _shared.append(_Shared())
    with _shared[0].use() as browser:
        yield browser


class Workbench:
    """A running `mlw ui` of one user."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self.process = process
        self._said = said
        wait_until(lambda: "login?code=" in self.words() or process.poll() is not None, "mlw ui")
        self.link = re.findall(r"http://\S+", self.words())[0]
        self.address = self.link.partition("/login")[0]  # for browsers, with the secret
        self.port = re.findall(r":(\d+)/", self.link)[0]
        self.numeric = f"http://127.0.0.1:{self.port}"  # for programs

    def words(self) -> str:
        return self._said.read_text(errors="replace")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@contextmanager
def workbench(user: Any, cwd: Path, place: Path, *words: str) -> Iterator[Workbench]:
    said = place / f"ui-{len(list(place.glob('ui-*')))}.txt"
    with open(said, "wb") as file:
        process = user.start("ui", "--no-browser", *words, cwd=cwd, stdout=file, stderr=file)
    try:
        yield Workbench(process, said)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(20)


class Looker:
    """A person with a browser who is let in; keeps what the pages complain about and whom else they ask."""

    def __init__(self, browser: Any, bench: Workbench, **settings: Any) -> None:
        self.bench = bench
        self.context = browser.new_context(viewport={"width": 1400, "height": 900}, **settings)
        self.context.set_default_navigation_timeout(60_000)  # a server that has just been started on a loaded machine
        self.complaints: list[str] = []
        self.outside: list[str] = []
        self.page = self.tab()
        self.page.goto(bench.link)
        self.page.wait_for_url(bench.address + "/")

    def tab(self) -> Any:
        page = self.context.new_page()
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._note)
        return page

    def go(self, path: str) -> Any:
        self.page.goto(self.bench.address + path)
        return self.page

    def ask(self, path: str, method: str = "GET", **more: Any) -> Any:
        """A request of its own, with the cookies of this browser. Names below .localhost only a browser resolves."""
        cookies = "; ".join(f"{one['name']}={one['value']}" for one in self.context.cookies())
        host, _, base = self.bench.address.removeprefix("http://").partition("/")
        headers = {"Host": host, "Cookie": cookies, "Origin": f"http://{host}"}
        address = f"{self.bench.numeric}/{base}".rstrip("/") + path
        return self.context.request.fetch(address, method=method, headers=headers, **more)

    def keep(self, place: Path) -> None:
        """What is on the screen, and where the server is, for whoever asks why a test failed."""
        self.page.screenshot(path=place / "failed.png", timeout=5000)
        (place / "failed.html").write_text(self.page.content())
        (place / "failed.txt").write_text("\n".join((self.page.url, *self.complaints)))
        self.bench.process.send_signal(signal.SIGUSR1)

    def must_be_content(self) -> None:
        """No page complained, and none asked another host for anything."""
        assert self.complaints == [], self.complaints
        assert self.outside == [], self.outside

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.bench.address, "data:", "blob:")):
            self.outside.append(request.url)


@contextmanager
def looking(user: Any, cwd: Path, place: Path, *words: str, **settings: Any) -> Iterator[Looker]:
    """`mlw ui` in this folder, and a browser that was let in."""
    with workbench(user, cwd, place, *words) as bench, chromium() as browser:
        looker = Looker(browser, bench, **settings)
        witnesses.add(looker)
        try:
            yield looker
        except BaseException:
            with suppress(Exception):  # the browser may be what failed
                looker.keep(place)
            raise
        finally:
            witnesses.discard(looker)
