"""Data classes for facts about a machine, built from a reply of any mlw version.

The reply comes from ``remote/system_facts.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .replies import parse_dataclass

T = TypeVar("T")


@dataclass(frozen=True)
class System:
    """Operating system. As in all classes in this module, unknown fields are None."""

    system: str | None = None
    name: str | None = None
    version: str | None = None
    title: str | None = None
    kernel: str | None = None
    arch: str | None = None
    libc: str | None = None


@dataclass(frozen=True)
class Python:
    """The Python interpreter that runs the agent on the machine. Scripts may use another."""

    version: str | None = None
    executable: str | None = None
    tried: bool | None = None  # False: found, but not executed


@dataclass(frozen=True)
class User:
    """The account on the machine."""

    name: str | None = None
    uid: int | None = None
    gid: int | None = None
    home: str | None = None
    home_writable: bool | None = None
    shell: str | None = None


@dataclass(frozen=True)
class Cpu:
    """Processors. ``usable`` counts those on which this user's processes may run."""

    count: int | None = None
    usable: int | None = None


@dataclass(frozen=True)
class Memory:
    """Memory in bytes."""

    total: int | None = None
    available: int | None = None
    limit: int | None = None  # limit set by the enclosing container or cgroup


@dataclass(frozen=True)
class Store:
    """The folder that contains the runs, and its disk."""

    folder: str | None = None
    writable: bool | None = None
    free: int | None = None
    total: int | None = None
    inodes_free: int | None = None
    filesystem: str | None = None
    network: bool | None = None
    noexec: bool | None = None  # mounted noexec: programs on it cannot be started


@dataclass(frozen=True)
class Engine:
    """An installed container engine, Docker or Podman. This user can use it unless ``error`` is set."""

    program: str | None = None
    path: str | None = None
    version: str | None = None
    os: str | None = None
    arch: str | None = None
    rootless: bool | None = None
    nvidia: bool | None = None
    socket: str | None = None  # the engine's socket, if the user's environment sets it
    selinux: bool | None = None
    error: str | None = None  # first line of the engine's error message
    code: str | None = None  # code of an error that mlw detected; see remote/engine_facts.py


@dataclass(frozen=True)
class Nvidia:
    """NVIDIA software that can be found without querying a GPU."""

    driver: str | None = None
    smi: str | None = None
    cdi: bool | None = None


@dataclass(frozen=True)
class Logind:
    """Settings that determine whether processes are killed when their login session ends."""

    running: bool | None = None
    kill_user_processes: bool | None = None
    linger: bool | None = None


@dataclass(frozen=True)
class Reach:
    """Result of checking whether an external host responds, if the check was requested."""

    host: str | None = None
    way: bool | None = None
    proxy: bool | None = None
    error: str | None = None


@dataclass(frozen=True)
class Facts:
    """Facts about a machine at one point in time."""

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
    script: Python | None = None  # the Python interpreter for scripts, if it was looked up
    reach: Reach | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Facts:
        """Build facts from a reply.

        Missing or invalid values become None, and unknown keys from a newer host are ignored.
        """
        return parse_dataclass(
            cls,
            data,
            os=_parse(System, data.get("os")) or System(),
            python=_parse(Python, data.get("python")) or Python(),
            user=_parse(User, data.get("user")) or User(),
            cpu=_parse(Cpu, data.get("cpu")) or Cpu(),
            memory=_parse(Memory, data.get("memory")) or Memory(),
            store=_parse(Store, data.get("store")) or Store(),
            nvidia=_parse(Nvidia, data.get("nvidia")) or Nvidia(),
            docker=_parse(Engine, data.get("docker")),
            podman=_parse(Engine, data.get("podman")),
            logind=_parse(Logind, data.get("logind")) or Logind(),
            script=_parse(Python, data.get("script")),
            reach=_parse(Reach, data.get("reach")),
        )


def _parse(kind: type[T], data: object) -> T | None:
    return parse_dataclass(kind, data) if isinstance(data, Mapping) else None
