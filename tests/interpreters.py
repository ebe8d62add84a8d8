"""Every Python on this machine, so that what travels is tested on each. A fresh machine has one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path


@lru_cache
def interpreters() -> dict[tuple[int, int], str]:
    """Version → path, one for each minor version; the running one is always there."""
    places = [Path(home).glob("*/bin/python") for home in _homes()]
    found = {}
    paths = [*(str(one) for place in places for one in place), *_on_path(), sys.executable]
    for path in dict.fromkeys(os.path.realpath(path) for path in paths):
        version = _version(path)
        if version:
            found[version] = path
    return dict(sorted(found.items()))


def _homes() -> list[str]:
    return [os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")) + "/versions", "/root/.pyenv/versions"]


def _on_path() -> list[str]:
    names = ["python3", *(f"python3.{minor}" for minor in range(6, 20))]
    return [path for name in names if (path := shutil.which(name)) and "shims" not in path]


def _version(path: str) -> tuple[int, int] | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = re.match(r"Python (\d+)\.(\d+)", done.stdout)
    return (int(words.group(1)), int(words.group(2))) if words else None


def oldest_and_newest(oldest: tuple[int, int]) -> list[tuple[tuple[int, int], str]]:
    """Of those from a version up: enough where no difference is known between the others."""
    found = from_version(oldest)
    return sorted({found[0], found[-1]})


def from_version(oldest: tuple[int, int]) -> list[tuple[tuple[int, int], str]]:
    return [(version, path) for version, path in interpreters().items() if version >= oldest]
