"""A target with simulated GPUs (tests/machines/nvml) for the test_gpu files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mlworkbench.hosts.local_host import install
from mlworkbench.remote.shared.layout import Root
from tests.machines.nvml import USE_GPU, FakeGpus

from .conftest import Place

GIB = 1 << 30
# Waits until the supervisor has sampled the GPUs twice more. A fixed delay would fail on slow machines.
LOOKED = """
import os, time
def looks():
    try:
        with open(os.environ["MLW_RUN_FOLDER"] + "/gpu.jsonl") as file: return file.read().count("\\n")
    except FileNotFoundError: return 0
earlier = looks()
while looks() < earlier + 2: time.sleep(0.02)
"""


class GpuHost(Place):
    """A target whose supervisors see fake GPUs. The bundle includes the NVML binding, as on a real target."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder)
        self.gpus = FakeGpus(folder)
        # Separate GPUs for each test: GPU leases apply to the whole machine and would block other tests.
        self.uuids = [f"GPU-{os.urandom(6).hex()}-{number}" for number in range(count)]
        for uuid in self.uuids:
            self.gpus.add(uuid, memory=(16 * GIB, 0), name="NVIDIA H200", utilisation=0)
        self.env.update(self.gpus.env)
        self.program = install(Root(str(self.root)))

    def run(self, run_id: str, script: str, **changes: Any) -> Path:
        """Create a run whose script may call use_gpu()."""
        folder = super().run(run_id, USE_GPU + script, inherit=["PATH", "HOME", "MLW_FAKE_GPUS"], **changes)
        return folder

    def order(self) -> list[str]:
        """Return the runs in the order in which they got their GPUs."""
        moments = []
        for folder in (self.root / "runs").iterdir():
            moments += [(event["t"], folder.name) for event in self.events(folder) if event["kind"] == "gpus"]
        return [name for _, name in sorted(moments)]
