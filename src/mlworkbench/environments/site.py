"""What an environment is settled from, and what it comes to: two values, the same for all kinds of environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..model import Compute, Interpreter, JsonDict, RunConfig
from ..paths import UserPaths
from ..remote.shared.layout import Root


@dataclass(frozen=True)
class Site:
    """A project, a run configuration, and the machine that the environment is for."""

    root: Path  # of the project
    runconfig: RunConfig
    compute: Compute
    paths: UserPaths
    environ: Mapping[str, str]
    target: Callable[[], Root]  # the folder of ours on the machine
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the machine, where somebody has looked
    image_libc: Callable[[], str | None] = lambda: None  # of the image, where there is one and somebody can tell
    locked: JsonDict | None = None  # this very environment, of an earlier run
    refresh: bool = False  # solve anew
    allowed_builds: frozenset[str] = frozenset()  # packages that may run their build scripts here, by this command
    dry_run: bool = False  # nothing that the project names or holds is started
    tell: Callable[[str], None] = lambda text: None  # what takes its time


@dataclass(frozen=True)
class Settled:
    """An environment, to the last version. The interpreter is the one that runs the script, by its path there."""

    lock: JsonDict
    interpreter: Interpreter
    path: tuple[str, ...] = ()  # folders that go before PATH
    variables: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()  # folders that a container must see, read-only, at the same place
    libc: str | None = None  # the oldest glibc that it runs on
