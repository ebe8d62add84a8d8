"""A Python without packages for users: the one below it may have many, and start-up code in files *.pth."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path

from mlworkbench.testing.user import PYTHON
from tests.machines.file_cache import cached_folder


def use_empty_python(env: dict[str, str]) -> None:
    """Replace the Python of the tests on PATH."""
    env["PATH"] = env["PATH"].replace(f"{Path(PYTHON).parent}:", f"{empty_python().parent}:", 1)


@lru_cache
def empty_python() -> Path:
    """Return the interpreter."""

    def make(folder: Path) -> None:
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(folder)], check=True)

    return cached_folder("pythons/empty", PYTHON, make) / "bin" / "python"
