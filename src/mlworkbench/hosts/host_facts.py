"""What a machine is like, as a value: made from what ``remote/facts.py`` found there, by whichever version of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .replies import part_of

Part = TypeVar("Part")


@dataclass(frozen=True)
class System:
    """Operating system. Like everything here, a field is None if nobody could tell."""

    system: str | None = None
    name: str | None = None
    version: str | None = None
    title: str | None = None
    kernel: str | None = None
    arch: str | None = None
    libc: str | None = None


@dataclass(frozen=True)
class Python:
    """The Python that our program runs on there; scripts may have another."""

    version: str | None = None
    executable: str | None = None
    tried: bool | None = None  # False: it was found and not started


@dataclass(frozen=True)
class User:
    """Who we are on that machine."""

    name: str | None = None
    uid: int | None = None
    gid: int | None = None
    home: str | None = None
    home_writable: bool | None = None
    shell: str | None = None


@dataclass(frozen=True)
class Cpu:
    """Processors; usable are those that this user's processes may run on."""

    count: int | None = None
    usable: int | None = None


@dataclass(frozen=True)
class Memory:
    """Bytes."""

    total: int | None = None
    available: int | None = None
    limit: int | None = None  # of the container or slice that we are in


@dataclass(frozen=True)
class Store:
    """The folder that runs are kept in, and the disk below it."""

    folder: str | None = None
    writable: bool | None = None
    free: int | None = None
    total: int | None = None
    inodes_free: int | None = None
    filesystem: str | None = None
    network: bool | None = None
    noexec: bool | None = None  # programs on it cannot be started


@dataclass(frozen=True)
class Engine:
    """Docker or podman: there, and usable by this user unless there is an error."""

    program: str | None = None
    path: str | None = None
    version: str | None = None
    os: str | None = None
    arch: str | None = None
    rootless: bool | None = None
    nvidia: bool | None = None
    socket: str | None = None  # where it listens, if the user's environment there says so
    selinux: bool | None = None
    error: str | None = None  # the first line of what it said itself
    code: str | None = None  # of an error that mlw found out: see remote/engine_facts.py


@dataclass(frozen=True)
class Nvidia:
    """What shows without asking any GPU."""

    driver: str | None = None
    smi: str | None = None
    cdi: bool | None = None


@dataclass(frozen=True)
class Logind:
    """Whether the end of a login session ends the processes that were started in it."""

    running: bool | None = None
    kill_user_processes: bool | None = None
    linger: bool | None = None


@dataclass(frozen=True)
class Reach:
    """Whether a host outside answered, where somebody asked for that."""

    host: str | None = None
    way: bool | None = None
    proxy: bool | None = None
    error: str | None = None


@dataclass(frozen=True)
class Facts:
    """One machine at one moment."""

    time: float | None = None
    hostname: str | None = None
    boot_id: str | None = None
    os: System = System()
    python: Python = Python()
    user: User = User()
    cpu: Cpu = Cpu()
    memory: Memory = Memory()
    store: Store = Store()
    nvidia: Nvidia = Nvidia()
    cgroup: int | None = None
    docker: Engine | None = None
    podman: Engine | None = None
    logind: Logind = Logind()
    script: Python | None = None  # the one that would run scripts, if it was looked for
    reach: Reach | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Facts:
        """What is missing, or not of its kind, stays unknown; what is new to us is left out: the host may be newer."""
        return part_of(
            cls,
            data,
            os=_part(System, data.get("os")) or System(),
            python=_part(Python, data.get("python")) or Python(),
            user=_part(User, data.get("user")) or User(),
            cpu=_part(Cpu, data.get("cpu")) or Cpu(),
            memory=_part(Memory, data.get("memory")) or Memory(),
            store=_part(Store, data.get("store")) or Store(),
            nvidia=_part(Nvidia, data.get("nvidia")) or Nvidia(),
            docker=_part(Engine, data.get("docker")),
            podman=_part(Engine, data.get("podman")),
            logind=_part(Logind, data.get("logind")) or Logind(),
            script=_part(Python, data.get("script")),
            reach=_part(Reach, data.get("reach")),
        )


def _part(kind: type[Part], data: object) -> Part | None:
    return part_of(kind, data) if isinstance(data, Mapping) else None
