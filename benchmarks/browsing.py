"""A real Chromium with the servers of mlw and MLflow: time until a page is ready, and its resource use."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peers
from context import Context, is_alive
from timing import Program

CHROMIUM = "/usr/bin/chromium"
LONGEST = 120.0  # timeout for a page in seconds
_ARGUMENTS = (
    "--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
    "--enable-precise-memory-info", "--js-flags=--expose-gc",
)  # fmt: skip
# Records the times between frames until it is canceled.
_FRAMES = """() => {
  window.benchFrames = [];
  let last = performance.now();
  const tick = now => {
    window.benchFrames.push(now - last);
    last = now;
    window.benchTick = requestAnimationFrame(tick);
  };
  window.benchTick = requestAnimationFrame(tick);
}"""


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - not installed for the other sections

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


def lacks() -> str:
    """Return the first missing requirement of these sections, or an empty string."""
    try:
        import playwright  # noqa: F401, PLC0415 - checks whether it is installed
    except ModuleNotFoundError:
        return "playwright"
    return "" if os.access(CHROMIUM, os.X_OK) else CHROMIUM


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class Server:
    """A server started from a command, with all its processes."""

    process: subprocess.Popen[bytes]
    address: str
    began: float
    link: str = ""  # login link for a browser
    told: float = 0.0  # seconds from the start until the server printed its address

    @property
    def memory(self) -> int:
        """Return the memory of the server and its child processes in bytes. Shared memory counts once."""
        return sum(_proportional(pid) for pid in _tree(self.process.pid))

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in _tree(self.process.pid) - {self.process.pid}:
            if is_alive(pid):
                os.kill(pid, 9)


def start_ours(program: Program, log: Path) -> Server:
    """Start `mlw ui --no-browser` and wait for the line with the link."""
    with open(log, "wb") as file:
        began = time.perf_counter()
        process = subprocess.Popen(
            program.command, cwd=program.folder, env=program.environment, stdin=subprocess.DEVNULL, stdout=file,
            stderr=file,
        )  # fmt: skip
    while not (links := re.findall(r"http://\S+login\S+", log.read_text())):
        if process.poll() is not None:
            raise RuntimeError(f"mlw ui ended: {log.read_text()[-2000:]}")
        time.sleep(0.001)
    ready = time.perf_counter() - began
    return Server(process, links[0].partition("/login")[0], began, links[0], ready)


def start_theirs(context: Context, peer: peers.Peer, database: str) -> Server:
    """Start `mlflow ui` on a SQLite store, as documented."""
    port = free_port()
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    place = f"sqlite:///{database}"
    began = time.perf_counter()
    process = subprocess.Popen(
        (str(peer.program), "ui", "--backend-store-uri", place, "--port", str(port)), cwd=context.workspace,
        env={**context.environment, **quiet, "PATH": f"{peer.program.parent}:{os.environ['PATH']}"},  # type: ignore[union-attr]
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return Server(process, f"http://127.0.0.1:{port}", began)


def wait_for_port(server: Server) -> None:
    port = server.address.rpartition(":")[2]
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
            return
        except OSError:
            if server.process.poll() is not None or time.perf_counter() - server.began > LONGEST:
                raise RuntimeError(f"{server.address} never answered") from None
            time.sleep(0.005)


@dataclass
class Visitor:
    """A browser context, with its own cookies and cache, for one server."""

    browser: Any
    server: Server
    context: Any = field(init=False)

    def __post_init__(self) -> None:
        self.context = self.browser.new_context(viewport={"width": 1400, "height": 900})
        self.context.set_default_timeout(LONGEST * 1000)

    def come_in(self) -> None:
        page = self.context.new_page()
        page.goto(self.server.link)
        page.wait_for_url(self.server.address + "/")
        page.close()

    def ready(self, path: str, sign: str) -> tuple[float, Any]:
        """Return the seconds from navigation to the expected content, and the page."""
        page = self.context.new_page()
        began = time.perf_counter()
        page.goto(self.server.address + path, wait_until="commit")
        page.wait_for_selector(sign)
        return time.perf_counter() - began, page


def heap(page: Any) -> tuple[int, int]:
    """Return the size of the page's JavaScript heap after garbage collection, and its number of elements."""
    page.evaluate("window.gc && window.gc()")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return int(metrics["JSHeapUsedSize"]), int(page.evaluate("document.querySelectorAll('*').length"))


def frames(page: Any, work: Any) -> list[float]:
    """Return the seconds between the frames that the page renders during ``work``."""
    page.evaluate(_FRAMES)
    work()
    times = page.evaluate("cancelAnimationFrame(window.benchTick), window.benchFrames")
    return [duration / 1000 for duration in times[1:]]


def _tree(pid: int) -> set[int]:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    pids = {pid}
    while more := {child for child, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return pids


def _proportional(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return int(re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE)[0]) * 1024
