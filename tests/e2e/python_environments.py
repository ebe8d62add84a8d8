"""Pythons with packages, as a user has them: nothing of ours is in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REAL_PYTHON
from tests.machines.kept import keep

UV = Path(sys.executable).with_name("uv")


def make(place: Path, *packages: str) -> Path:
    """A new virtual environment in the folder; its interpreter."""
    subprocess.run([UV, "venv", "-q", "-p", REAL_PYTHON, place], check=True)
    install(place / "bin" / "python", *packages)
    return place / "bin" / "python"


def kept(name: str, *packages: str) -> Path:
    """The same, made once and kept for the next time; what is imported is compiled from then on. Do not change it."""
    about = " ".join([REAL_PYTHON, *packages])
    return keep(f"pythons/{name}", about, lambda place: make(place, *packages)) / "bin" / "python"


def install(python: Path | str, *packages: str) -> None:
    # The machine's own certificates: a proxy before the package index may have one of those.
    settings = {**os.environ, "UV_SYSTEM_CERTS": "1"}
    subprocess.run([UV, "pip", "install", "-q", "-p", python, *packages], check=True, env=settings)
