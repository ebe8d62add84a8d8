"""Install the plugins of examples/. test_documentation_pages.py installs them with pip, as their page shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.building import UV
from tests.machines.pages import blocks

EXAMPLES = Path(__file__).parents[2] / "examples"


JOB_SCRIPT_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-compute-type.md"


def write_job_script(home: Path) -> None:
    """Write the script for the target of examples/sshscript as its page shows it."""
    (text,) = (block.text for block in blocks(JOB_SCRIPT_PAGE.read_text()) if block.kind == "sh")
    script = home / "mlw-job"
    script.write_text(text)
    script.chmod(0o755)


def install(name: str, place: Path) -> dict[str, str]:
    """Install the plugin into an otherwise empty folder and return the variables with which mlw finds it."""
    command = ["pip", "install", "-q", "--offline", "--no-deps", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([UV, *command, "--target", place, EXAMPLES / name], check=True)
    return {"PYTHONPATH": str(place)}
