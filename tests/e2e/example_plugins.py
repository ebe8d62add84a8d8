"""The plugins of examples/, installed. As their page says it, with pip: test_documented::test_plugins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.building import UV
from tests.machines.pages import blocks

EXAMPLES = Path(__file__).parents[2] / "examples"


JOB_SCRIPT_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-compute-type.md"


def write_job_script(home: Path) -> None:
    """The script that the target of examples/sshscript has, as its page shows it."""
    (text,) = (block.text for block in blocks(JOB_SCRIPT_PAGE.read_text()) if block.kind == "sh")
    script = home / "mlw-job"
    script.write_text(text)
    script.chmod(0o755)


def install(name: str, place: Path) -> dict[str, str]:
    """Into a folder that holds the plugin and nothing else; the variables with which mlw finds it there."""
    words = ["pip", "install", "-q", "--offline", "--no-deps", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([UV, *words, "--target", place, EXAMPLES / name], check=True)
    return {"PYTHONPATH": str(place)}
