"""Arguments for the functions that plugins implement, with defaults for what a test does not need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..environments.selection_request import EnvironmentRequest
from ..frameworks.framework import Setting
from ..model import Compute, Entry, RunConfig
from ..paths import UserPaths
from ..remote.shared.layout import Root
from ..targets.types import LOCAL

_COMPUTE = Compute("box", LOCAL.name)
_RUNCONFIG = RunConfig("demo", _COMPUTE.name)
_ROOT = "/home/ada/.mlw"  # this folder is never accessed


def framework_setting(entry: Entry, **changes: Any) -> Setting:
    """Return the argument for a framework's ``make``. ``changes`` replaces fields."""
    setting = Setting(
        entry=entry,
        python="/usr/bin/python3",
        runconfig=_RUNCONFIG,
        compute=_COMPUTE,
        root=Root(_ROOT),
        inrun=f"{_ROOT}/lib/0/remote/inrun",
    )
    return replace(setting, **changes)


def environment_site(project: Path, **changes: Any) -> EnvironmentRequest:
    """Return the argument for an environment plugin, for a project folder.

    ``changes`` replaces fields.
    """
    site = EnvironmentRequest(
        root=project,
        runconfig=_RUNCONFIG,
        compute=_COMPUTE,
        paths=UserPaths(project / ".mlw"),
        environ={},
        target=lambda: Root(_ROOT),
    )
    return replace(site, **changes)
