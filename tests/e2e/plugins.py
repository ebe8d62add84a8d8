"""The plugins of examples/, installed as anybody's would be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def install(name: str, place: Path) -> dict[str, str]:
    """Into a folder that holds the plugin and nothing else; the variables with which mlw finds it there."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", str(place), str(EXAMPLES / name)], check=True)
    return {"PYTHONPATH": str(place)}
