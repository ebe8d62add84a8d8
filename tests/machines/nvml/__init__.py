"""The fake GPUs of `mlworkbench.testing`. Tests that use them need a C compiler."""

from __future__ import annotations

from pathlib import Path

from mlworkbench.testing import USE_GPU
from mlworkbench.testing import FakeGpus as ShippedFakeGpus
from tests.conftest import need

__all__ = ["HERE", "USE_GPU", "FakeGpus"]
HERE = Path(__file__).parent


class FakeGpus(ShippedFakeGpus):
    """Simulated GPUs. Without a C compiler, skip the test, or fail on CI."""

    def __init__(self, folder: Path) -> None:
        need("cc")
        super().__init__(folder)
