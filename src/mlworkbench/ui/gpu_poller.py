"""The GPUs of targets, asked for only while somebody looks: one question at a time, by a connection that is kept."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from ..errors import MlwError
from ..hosts.facts import Facts
from ..hosts.gpus import Gpus, ask_gpus
from ..hosts.host import Host
from ..model import Compute
from ..paths import UserPaths
from ..targets.opening import open_target
from ..targets.types import is_elsewhere

PAUSE = 2.0  # seconds between two questions
_SLOWEST = 60.0  # between two questions to a machine that does not answer
_PATIENCE = 3.0  # that a page waits for an answer; the question goes on
_IDLE = 20.0  # after which a connection that nobody asks by is let go
_FRESH = 30.0  # that facts of this machine count as new
_THREADS = 16


@dataclass(frozen=True)
class Reading:
    """``state``: ok, asking (no answer yet), no contact. ``again``: seconds until the machine is asked again."""

    state: str
    gpus: Gpus | None = None
    message: str | None = None
    hint: str | None = None
    asked: float | None = None
    again: float = PAUSE


@dataclass
class _Machine:
    """One that is looked at."""

    reading: Reading = field(default_factory=lambda: Reading("asking"))
    host: Host | None = None
    task: asyncio.Task[None] | None = None
    due: float = 0.0
    pause: float = PAUSE
    wanted: float = 0.0
    begun: float = 0.0

    def look(self, compute: Compute, paths: UserPaths) -> Gpus:
        """In a worker thread."""
        if self.host is None:
            self.host = open_target(compute, paths).host
        return ask_gpus(self.host)

    def let_go(self) -> None:
        host, self.host = self.host, None
        if host is not None:
            host.close()


class GpuWatch:
    """All of them."""

    def __init__(self, paths: UserPaths) -> None:
        self._paths = paths
        self._pool = ThreadPoolExecutor(_THREADS, "mlw-gpus")
        self._known: dict[Hashable, _Machine] = {}
        self._here: tuple[float, Facts] | None = None
        self._lock = threading.Lock()
        self._closed = False

    async def ask(self, compute: Compute) -> Reading:
        """As they are now, or as far as that is known: nobody waits long for a machine that does not answer."""
        one = self._known.setdefault(_name(compute), _Machine())
        one.wanted = time.monotonic()
        if one.task is None and one.wanted >= one.due:
            one.task = asyncio.create_task(self._look(_name(compute), one, compute))
        if one.task is not None:
            await asyncio.wait({one.task}, timeout=_PATIENCE)
        return one.reading if one.task is None else _unanswered(one)

    async def let_go(self, compute: Compute) -> None:
        """Before something else has to have the machine for itself; and ask anew afterwards, whatever it was."""
        one = self._known.pop(_name(compute), None)
        if one is None:
            return
        if one.task is not None:
            await asyncio.wait({one.task}, timeout=_PATIENCE)
        await self._close(one)

    async def _look(self, name: Hashable, one: _Machine, compute: Compute) -> None:
        loop = asyncio.get_running_loop()
        one.begun = time.monotonic()
        try:
            found = await loop.run_in_executor(self._pool, one.look, compute, self._paths)
            one.reading, one.pause = Reading("ok", found, asked=time.time()), PAUSE
        except MlwError as error:
            one.pause = min(2 * one.pause, _SLOWEST)
            words = error.message, error.hint
            one.reading = Reading("no contact", one.reading.gpus, *words, one.reading.asked, one.pause)
            await self._close(one)
        finally:
            one.task = None
            one.due = max(one.begun, time.monotonic() - PAUSE / 2) + one.pause - 0.2  # a page's clock is not exact
            loop.call_later(_IDLE + 1, self._tidy, name)

    def _tidy(self, name: Hashable) -> None:
        one = self._known.get(name)
        if self._closed or one is None or one.task is not None:
            return
        if time.monotonic() - one.wanted > _IDLE:
            del self._known[name]
            self._pool.submit(one.let_go)

    async def _close(self, one: _Machine) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, one.let_go)

    def facts_here(self) -> Facts:
        """Of this machine. In a worker thread: a slow engine takes seconds."""
        from ..hosts.local import LocalHost  # noqa: PLC0415 - only this page needs it

        with self._lock:
            if self._here is None or time.monotonic() - self._here[0] > _FRESH:
                self._here = time.monotonic(), LocalHost(self._paths.root, {}).facts()
            return self._here[1]

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)


def _unanswered(one: _Machine) -> Reading:
    """A question is under way for longer than people wait: what was last known, as such."""
    silent = time.monotonic() - one.begun
    if one.reading.state == "asking" and silent < 4 * _PATIENCE:
        return one.reading  # it may be the first connection
    return replace(one.reading, state="no contact", message=f"no response for {silent:.0f} s", hint=None, again=PAUSE)


def _name(compute: Compute) -> Hashable:
    if not is_elsewhere(compute):
        return "this machine"
    if compute.address is None:  # a plugin finds the machine by other means
        return compute.type, compute.name
    return compute.address, compute.username, compute.port, compute.jump_host
