"""Polling of targets' GPU values over a persistent connection, only while a page shows them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from ..errors import MlwError
from ..hosts.gpu_values import Gpus, fetch_gpus
from ..hosts.host import Host
from ..hosts.host_facts import Facts
from ..model import Compute
from ..paths import UserPaths
from ..report.slurm_report import describe_gpus
from ..targets.slurm_facts import fetch_slurm_facts
from ..targets.target_factory import open_target
from ..targets.types import Feature, is_elsewhere, type_of

INTERVAL = 2.0  # seconds between two polls
_SCHEDULER_INTERVAL = 30.0  # seconds between polls of a scheduler, which all users of a cluster share
_MAX_INTERVAL = 60.0  # maximum seconds between polls of an unreachable machine
_TIMEOUT = 3.0  # seconds that a page waits for a poll, which continues after that
_IDLE_TIMEOUT = 20.0  # seconds before an unused connection closes
_FACTS_MAX_AGE = 30.0  # seconds to cache the facts about this machine
_THREADS = 16


@dataclass(frozen=True)
class Reading:
    """GPU values of a machine.

    ``state`` is ``ok``, ``asking`` (no response yet), or ``no contact``. ``again`` is the number of
    seconds until the next poll.
    """

    state: str
    gpus: Gpus | None = None
    message: str | None = None
    hint: str | None = None
    asked: float | None = None
    again: float = INTERVAL


@dataclass
class _Machine:
    """Polled machine."""

    reading: Reading = field(default_factory=lambda: Reading("asking"))
    host: Host | None = None
    task: asyncio.Task[None] | None = None
    next_poll: float = 0.0
    interval: float = INTERVAL
    last_requested: float = 0.0
    started: float = 0.0

    def read_gpus(self, compute: Compute, paths: UserPaths) -> Gpus:
        """Read the machine's GPUs. Runs in a worker thread."""
        if self.host is None:
            self.host = open_target(compute, paths).host
        if type_of(compute).has(Feature.SCHEDULER_GPUS):
            return Gpus(note=describe_gpus(fetch_slurm_facts(self.host, nodes_only=True)))
        return fetch_gpus(self.host)

    def disconnect(self) -> None:
        host, self.host = self.host, None
        if host is not None:
            host.close()


class GpuPoller:
    """Poller of the machines of all targets."""

    def __init__(self, paths: UserPaths) -> None:
        self._paths = paths
        self._pool = ThreadPoolExecutor(_THREADS, "mlw-gpus")
        self._machines: dict[Hashable, _Machine] = {}
        self._local_facts: tuple[float, Facts] | None = None
        self._lock = threading.Lock()
        self._closed = False

    async def read(self, compute: Compute) -> Reading:
        """Return the current reading, or the last one if the machine does not respond in time."""
        machine = self._machines.setdefault(_machine_key(compute), _Machine())
        machine.last_requested = time.monotonic()
        if machine.task is None and machine.last_requested >= machine.next_poll:
            machine.task = asyncio.create_task(self._poll(_machine_key(compute), machine, compute))
        if machine.task is not None:
            await asyncio.wait({machine.task}, timeout=_TIMEOUT)
        return machine.reading if machine.task is None else _overdue_reading(machine)

    async def disconnect(self, compute: Compute) -> None:
        """Close the connection to a machine, for example before detaching it.

        The next read polls the machine again.
        """
        machine = self._machines.pop(_machine_key(compute), None)
        if machine is None:
            return
        if machine.task is not None:
            await asyncio.wait({machine.task}, timeout=_TIMEOUT)
        await self._close(machine)

    async def _poll(self, key: Hashable, machine: _Machine, compute: Compute) -> None:
        loop = asyncio.get_running_loop()
        machine.started = time.monotonic()
        try:
            gpus = await loop.run_in_executor(self._pool, machine.read_gpus, compute, self._paths)
            interval = INTERVAL if gpus.note is None else _SCHEDULER_INTERVAL
            machine.reading, machine.interval = Reading("ok", gpus, asked=time.time(), again=interval), interval
        except MlwError as error:
            machine.interval = min(2 * machine.interval, _MAX_INTERVAL)
            text = error.message, error.hint
            machine.reading = Reading(
                "no contact", machine.reading.gpus, *text, machine.reading.asked, machine.interval
            )
            await self._close(machine)
        finally:
            machine.task = None
            machine.next_poll = (
                max(machine.started, time.monotonic() - INTERVAL / 2) + machine.interval - 0.2
            )  # 0.2 s earlier, because page timers are not exact
            loop.call_later(_IDLE_TIMEOUT + 1, self._drop_idle, key)

    def _drop_idle(self, key: Hashable) -> None:
        machine = self._machines.get(key)
        if self._closed or machine is None or machine.task is not None:
            return
        if time.monotonic() - machine.last_requested > _IDLE_TIMEOUT:
            del self._machines[key]
            self._pool.submit(machine.disconnect)

    async def _close(self, machine: _Machine) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, machine.disconnect)

    def local_facts(self) -> Facts:
        """Return the facts about this machine.

        Call this in a worker thread: a slow container engine can take seconds.
        """
        from ..hosts.local_host import LocalHost  # noqa: PLC0415 - only this page needs it

        with self._lock:
            if self._local_facts is None or time.monotonic() - self._local_facts[0] > _FACTS_MAX_AGE:
                self._local_facts = time.monotonic(), LocalHost(self._paths.root, {}).facts()
            return self._local_facts[1]

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)


def _overdue_reading(machine: _Machine) -> Reading:
    """Return the last reading of a machine whose poll takes too long, marked as ``no contact``."""
    elapsed = time.monotonic() - machine.started
    if machine.reading.state == "asking" and elapsed < 4 * _TIMEOUT:
        return machine.reading  # the first connection may take longer
    return replace(
        machine.reading, state="no contact", message=f"no response for {elapsed:.0f} s", hint=None, again=INTERVAL
    )


def _machine_key(compute: Compute) -> Hashable:
    if type_of(compute).has(Feature.SCHEDULER_GPUS):
        return compute.type, compute.name, compute.address, compute.username, compute.port, compute.jump_host
    if not is_elsewhere(compute):
        return "this machine"
    if compute.address is None:  # a plugin locates the machine by other means
        return compute.type, compute.name
    return compute.address, compute.username, compute.port, compute.jump_host
