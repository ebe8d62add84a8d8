"""The real supervisor with a container spec and a real engine, shared by the test_container files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.machines.engine import Engine
from tests.machines.programs import find

from .conftest import Place, until

DOCKER = find("docker") or "docker"


class ContainerTarget(Place):
    """A target with a Docker engine. Containers run as root by default, as the tests do."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        super().__init__(folder)
        self.engine = engine

    def run(self, run_id: str, script: str, **changes: Any) -> Path:
        container = changes.pop("container", {})
        changes.setdefault("argv", ["python3", "main.py"])
        folder = super().run(run_id, script, **changes)
        spec = json.loads((folder / "spec.json").read_text())
        home = str(self.root / "homes" / "p")
        spec["environment"].pop("AZUREML_NATIVE_SHARE_DIRECTORY")
        spec["container"] = {
            "engine": "docker",
            "program": DOCKER,
            "socket": str(self.engine.socket),
            "image": self.engine.image,
            "name": self.name(run_id),
            "user": f"{os.getuid()}:{os.getgid()}",
            "workdir": str(folder / "work"),
            "mounts": [[home, home, "rw"]],
            "environment": {"HOME": home, "USER": "ada", "LOGNAME": "ada"},
            "labels": {"mlw.run": run_id},
            "network": "none",
            **container,
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        return folder

    def name(self, run_id: str) -> str:
        """Return the name of the run's container. It is unique, because all tests share one engine."""
        return f"mlw-{run_id}-{self.root.parent.name}"

    def up(self, folder: Path, text: bytes = b"up") -> None:
        until(lambda: text in read(folder / "log"))

    def launcher(self, folder: Path) -> int:
        """Return the PID of the process that watches the container."""
        return int(json.loads((folder / "gate.json").read_text())["pid"])


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
