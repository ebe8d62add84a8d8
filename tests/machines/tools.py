"""The tools that build environments, as in a store after its first build."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mlworkbench.environments.pinned_tools import FILE
from tests.machines.file_cache import cached_folder

if TYPE_CHECKING:
    from tests.machines.machine import Machine


def give_tools(store: Path) -> None:
    """Put uv and py-rattler into a store: otherwise its first build downloads and unpacks 40 MB."""
    _copy(store, _link)


def give_tools_to(host: Machine) -> None:
    """Install the tools on an attached machine, which would otherwise get them over SSH."""
    _copy(host.home / ".mlw", shutil.copy2)
    host.run("chown", "-R", f"{host.user}:", str(host.home / ".mlw" / "tools"))


def _copy(store: Path, copy: Callable[[str, str], object]) -> None:
    from tests.supervisor.environment_builder import (
        make_toolbox,  # that module needs the channel, which needs this module
    )

    kept = cached_folder("tools", FILE.read_text(), lambda folder: (folder.mkdir(), make_toolbox(folder)))
    store.mkdir(mode=0o700, exist_ok=True)
    (store / "tools").mkdir(mode=0o700, exist_ok=True)
    for tool in (kept / "tools").iterdir():
        if not (store / "tools" / tool.name).exists():
            shutil.copytree(tool, store / "tools" / tool.name, copy_function=copy)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
