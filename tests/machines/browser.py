"""A real Chromium, and `mlw ui` for its pages."""

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

from tests.evidence import SUMMARY, witnesses
from tests.machines.network import wait_until

# The headless shell renders the same pages for half the CPU time; Playwright prefers it, too.
PROGRAMS = ("/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium")
WITHOUT_NETLINK = Path(__file__).parent / "without_netlink.py"
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",  # another site; only this browser resolves the name
)

_TIMEOUT = 90_000  # milliseconds to wait for a condition; on a loaded machine, 30 s were too short for a list of runs


class _SharedBrowser:
    """Playwright and one Chromium, started on first use and kept until the test process ends."""

    def __init__(self) -> None:
        expect.set_options(timeout=_TIMEOUT)
        self._place = tempfile.TemporaryDirectory()
        self._playwright = sync_playwright().start()
        self._loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        self._starter = Path(self._place.name) / "chromium"
        program = next(filter(os.path.exists, PROGRAMS), PROGRAMS[-1])
        self._starter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{WITHOUT_NETLINK}" {program} "$@"\n')
        self._starter.chmod(0o755)
        with self._running():
            self._browser = self._playwright.chromium.launch(executable_path=self._starter, args=_ARGUMENTS)
        atexit.register(self.stop)

    @contextmanager
    def use(self) -> Iterator[Any]:
        """Yield the browser. Contexts created in this block are closed at its end."""
        with self._running():
            before = list(self._browser.contexts)
            try:
                yield self._browser
            finally:
                with suppress(Error):  # the browser's failure has already failed the test; see is_alive
                    for context in self._browser.contexts:
                        if context not in before:
                            context.close()

    def is_alive(self) -> bool:
        """Return whether the browser works: timeouts may break the connection to Playwright, and browsers may crash."""
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
        """Make Playwright's event loop the running one in this block only; other code may run its own loop."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self._loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)


_shared: list[_SharedBrowser] = []


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield the Chromium of this test process; start a new one if it has died."""
    if _shared and not _shared[0].is_alive():
        _shared.pop().stop()
    if not _shared:
        _shared.append(_SharedBrowser())
    with _shared[0].use() as browser:
        yield browser


class UiServer:
    """A running `mlw ui` of one user."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output
        wait_until(lambda: "login?code=" in self.output() or process.poll() is not None, "mlw ui")
        self.link = re.findall(r"http://\S+", self.output())[0]
        self.address = self.link.partition("/login")[0]  # for browsers, with the secret
        self.port = re.findall(r":(\d+)/", self.link)[0]
        self.numeric = f"http://127.0.0.1:{self.port}"  # for programs

    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@contextmanager
def ui_server(user: Any, cwd: Path, place: Path, *arguments: str) -> Iterator[UiServer]:
    output = place / f"ui-{len(list(place.glob('ui-*')))}.txt"
    with open(output, "wb") as file:
        process = user.start("ui", "--no-browser", *arguments, cwd=cwd, stdout=file, stderr=file)
    try:
        yield UiServer(process, output)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(20)


class BrowserSession:
    """A browser of a logged-in user. Records console errors and requests to other hosts."""

    def __init__(self, browser: Any, server: UiServer, **settings: Any) -> None:
        self.server = server
        settings = {"viewport": {"width": 1400, "height": 900}, "reduced_motion": "reduce", **settings}
        self.context = browser.new_context(**settings)
        self.context.set_default_timeout(_TIMEOUT)
        witnesses.add(self)
        self.context.on("close", lambda _: witnesses.discard(self))
        self.console_errors: list[str] = []
        self.external_requests: list[str] = []
        self.page = self.new_tab()
        self.page.goto(server.link)
        self.page.wait_for_url(server.address + "/")

    def new_tab(self) -> Any:
        page = self.context.new_page()
        page.on(
            "console",
            lambda message: self.console_errors.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))
        page.on("request", self._record_request)
        return page

    def go(self, path: str) -> Any:
        self.page.goto(self.server.address + path)
        return self.page

    def request(self, path: str, method: str = "GET", **more: Any) -> Any:
        """Send a request with this browser's cookies to 127.0.0.1: only browsers resolve names below .localhost."""
        cookies = "; ".join(f"{cookie['name']}={cookie['value']}" for cookie in self.context.cookies())
        host, _, base = self.server.address.removeprefix("http://").partition("/")
        headers = {"Host": host, "Cookie": cookies, "Origin": f"http://{host}"}
        address = f"{self.server.numeric}/{base}".rstrip("/") + path
        return self.context.request.fetch(address, method=method, headers=headers, **more)

    def keep(self, place: Path) -> None:
        """Save screenshot, content, address, and messages of the page as evidence of a failed test."""
        (place / "failed.html").write_text(self.page.content())
        text = self.page.evaluate("document.body.innerText")
        (place / SUMMARY).write_text("\n".join((self.page.url, *self.console_errors, text)))
        self.server.process.send_signal(signal.SIGUSR1)
        self.page.screenshot(path=place / "failed.png", timeout=5000)

    def assert_no_errors(self) -> None:
        """Check that no page logged errors or sent requests to other hosts."""
        assert self.console_errors == [], self.console_errors
        assert self.external_requests == [], self.external_requests

    def _record_request(self, request: Any) -> None:
        if not request.url.startswith((self.server.address, "data:", "blob:")):
            self.external_requests.append(request.url)


@contextmanager
def browser_session(user: Any, cwd: Path, place: Path, *arguments: str, **settings: Any) -> Iterator[BrowserSession]:
    """Start `mlw ui` in this folder, and a logged-in browser."""
    with ui_server(user, cwd, place, *arguments) as server, chromium() as browser:
        ui = BrowserSession(browser, server, **settings)
        try:
            yield ui
        except BaseException:
            with suppress(Exception):  # the browser itself may have failed
                ui.keep(place)
            raise
