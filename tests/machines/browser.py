"""A real Chromium, and `mlw ui` for it to look at."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.machines.network import wait_until

CHROMIUM = "/usr/bin/chromium"
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
)


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*_ARGUMENTS, *arguments])
        try:
            yield browser
        finally:
            browser.close()


class Workbench:
    """A running `mlw ui` of one user."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self.process = process
        self._said = said
        wait_until(lambda: "login?code=" in self.words() or process.poll() is not None, "mlw ui")
        self.link = re.findall(r"http://\S+", self.words())[0]
        self.address = self.link.partition("/login")[0]

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
