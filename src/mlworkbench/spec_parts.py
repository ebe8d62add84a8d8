"""Parts of a run's spec: what to run, its container, and the state of the project's git repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Entry:
    """The program to run: a script or notebook, a module, or a command, with its arguments."""

    kind: str  # "script" (also for a notebook), "module", or "command"
    name: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """A command to run on the target. The last command of a run is the user's."""

    step: str
    argv: tuple[str, ...]


@dataclass(frozen=True)
class Container:
    """The container in which the user's command runs, with all options."""

    engine: str  # "docker" or "podman"
    program: str
    image: str
    name: str
    workdir: str
    socket: str | None = None  # path of the engine's socket; None: the program's default
    user: str | None = None  # uid:gid; None: the engine's default
    mounts: tuple[tuple[str, str, str], ...] = ()  # source, target, and "ro" or "rw"
    resolved: tuple[tuple[str, str], ...] = ()  # prefixes of mount sources that contain links, with their real paths
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] | None = None  # UUIDs, or ("all",)
    shm_size: str | None = None
    network: str | None = None
    memory: str | None = None
    cpus: str | None = None
    keep_entrypoint: bool = False
    options: tuple[str, ...] = ()
    registry: Mapping[str, str] | None = None
    pull: bool = True
    libc: str | None = None  # oldest glibc on which the environment runs, if not determined by the image


@dataclass(frozen=True)
class Git:
    """State of the project's git repository when the snapshot was taken."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool = False
