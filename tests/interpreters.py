"""All Python interpreters on this machine, so that tests can run remote code on each of them."""

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
    """Map versions to paths, one per minor version, always including the running one."""
    places = [Path(home).glob("*/bin/python") for home in _homes()]
    versions = {}
    paths = [*(str(candidate) for place in places for candidate in place), *_on_path(), sys.executable]
    for path in dict.fromkeys(os.path.realpath(path) for path in paths):
        version = _version(path)
        if version:
            versions[version] = path
    return dict(sorted(versions.items()))


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
    match = re.match(r"Python (\d+)\.(\d+)", done.stdout)
    return (int(match.group(1)), int(match.group(2))) if match else None


def oldest_and_newest(oldest: tuple[int, int]) -> list[tuple[tuple[int, int], str]]:
    """Return the oldest supported and the newest interpreter, for tests that need not run on all versions."""
    versions = from_version(oldest)
    return sorted({versions[0], versions[-1]})


def from_version(oldest: tuple[int, int]) -> list[tuple[tuple[int, int], str]]:
    return [(version, path) for version, path in interpreters().items() if version >= oldest]
