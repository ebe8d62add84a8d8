"""The plugins of examples/, installed. As their page says it, with pip: test_documented::test_plugins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.building import UV

EXAMPLES = Path(__file__).parents[2] / "examples"


def install(name: str, place: Path) -> dict[str, str]:
    """Into a folder that holds the plugin and nothing else; the variables with which mlw finds it there."""
    words = ["pip", "install", "-q", "--offline", "--no-deps", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([UV, *words, "--target", place, EXAMPLES / name], check=True)
    return {"PYTHONPATH": str(place)}
