"""The programs that build environments, as a store has them after its first build."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mlworkbench.environments.pinned_tools import FILE
from tests.machines.kept import keep


def give_tools(store: Path) -> None:
    """Put uv and py-rattler into a store: otherwise its first build fetches and unpacks 40 MB."""
    from tests.supervisor.building import make_toolbox  # that module needs the channel, which needs this one

    kept = keep("tools", FILE.read_text(), lambda folder: (folder.mkdir(), make_toolbox(folder)))
    store.mkdir(mode=0o700, exist_ok=True)
    (store / "tools").mkdir(mode=0o700, exist_ok=True)
    for tool in (kept / "tools").iterdir():
        if not (store / "tools" / tool.name).exists():
            shutil.copytree(tool, store / "tools" / tool.name, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
