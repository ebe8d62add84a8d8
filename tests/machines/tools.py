"""The programs that build environments, as a store has them after its first build."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mlworkbench.environments.pinned_tools import FILE
from tests.machines.kept import keep

if TYPE_CHECKING:
    from tests.machines.machine import Machine


def give_tools(store: Path) -> None:
    """Put uv and py-rattler into a store: otherwise its first build fetches and unpacks 40 MB."""
    _copy(store, _link)


def give_tools_to(host: Machine) -> None:
    """The same on a machine elsewhere, which would get them through ssh. It has been attached before."""
    _copy(host.home / ".mlw", shutil.copy2)
    host.run("chown", "-R", f"{host.user}:", str(host.home / ".mlw" / "tools"))


def _copy(store: Path, copy: Callable[[str, str], object]) -> None:
    from tests.supervisor.building import make_toolbox  # that module needs the channel, which needs this one

    kept = keep("tools", FILE.read_text(), lambda folder: (folder.mkdir(), make_toolbox(folder)))
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
