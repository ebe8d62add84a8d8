"""The input and result of selecting an environment, common to all kinds of environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..model import Compute, Interpreter, JsonDict, RunConfig
from ..paths import UserPaths
from ..remote.shared.layout import Root


@dataclass(frozen=True)
class EnvironmentRequest:
    """A project, a run configuration, and the machine for which the environment is selected."""

    root: Path  # project folder
    runconfig: RunConfig
    compute: Compute
    paths: UserPaths
    environ: Mapping[str, str]
    target: Callable[[], Root]  # mlw's folder on the machine
    facts: Mapping[str, Any] = field(default_factory=dict)  # facts about the machine, if known
    image_libc: Callable[[], str | None] = lambda: None  # the image's C library, if known
    locked: JsonDict | None = None  # lock of an earlier run to reuse
    refresh: bool = False  # resolve again instead of using a cached lock
    allowed_builds: frozenset[str] = frozenset()  # packages that may run build scripts on this machine
    dry_run: bool = False  # do not run anything that the project controls
    tell: Callable[[str], None] = lambda text: None  # receives progress messages


@dataclass(frozen=True)
class ResolvedEnvironment:
    """A selected environment with exact versions.

    ``interpreter`` is the Python on the target that runs the script.
    """

    lock: JsonDict
    interpreter: Interpreter
    path: tuple[str, ...] = ()  # folders to prepend to PATH
    variables: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()  # folders to mount read-only in a container, at the same path
    libc: str | None = None  # oldest glibc that the environment supports


# Former names, kept for plugins until version 1.0.
Site = EnvironmentRequest
Settled = ResolvedEnvironment
