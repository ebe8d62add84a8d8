"""Python interpreters with packages, as users have them, without mlw."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REAL_PYTHON
from tests.machines.file_cache import cached_folder

UV = Path(sys.executable).with_name("uv")
# Threads of numerical libraries wait for each other in busy loops. On a loaded machine, this triples their CPU time.
ONE_THREAD = ("--env", "OMP_NUM_THREADS=1", "--env", "OPENBLAS_NUM_THREADS=1")


def create_environment(place: Path, *packages: str) -> Path:
    """Create a virtual environment in the folder and return its interpreter."""
    subprocess.run([UV, "venv", "-q", "-p", REAL_PYTHON, place], check=True)
    install(place / "bin" / "python", *packages)
    return place / "bin" / "python"


# Importing large packages creates a million objects, and a collection after every 700 finds nothing.
_RARE_GARBAGE_COLLECTION = "import gc; gc.set_threshold(100_000)\n"


def cached_environment(name: str, *packages: str) -> Path:
    """Return the interpreter of a cached virtual environment, which callers must not change."""

    about = " ".join([REAL_PYTHON, *packages])
    folder = cached_folder(f"pythons/{name}", about, lambda place: create_environment(place, *packages))
    (packages_folder,) = folder.glob("lib/python3*/site-packages")
    startup = packages_folder / "rare_garbage_collection.pth"
    if not startup.exists():
        startup.write_text(_RARE_GARBAGE_COLLECTION)
    return folder / "bin" / "python"


def install(python: Path | str, *packages: str) -> None:
    # Trust the system's certificates, because a proxy in front of the package index may use one of them.
    settings = {**os.environ, "UV_SYSTEM_CERTS": "1"}
    subprocess.run([UV, "pip", "install", "-q", "-p", python, *packages], check=True, env=settings)
