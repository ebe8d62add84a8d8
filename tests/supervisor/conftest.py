"""Fixtures for the real supervisor as a real process. Tests write the run folder; there is no client."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.testing.processes import end_processes as end_marked
from mlworkbench.testing.processes import is_alive as alive
from mlworkbench.testing.processes import run_processes as marked
from mlworkbench.testing.processes import variables as environment
from mlworkbench.testing.target_folder import PROGRAM as REMOTE
from mlworkbench.testing.target_folder import PYTHON, TargetFolder
from mlworkbench.testing.waiting import wait_until as until
from tests.empty_python import empty_python

__all__ = ["PYTHON", "REMOTE", "Place", "alive", "delete_run", "end_marked", "environment", "marked", "until"]


class Place(TargetFolder):
    """A target's folder, with short method names."""

    def run(self, run_id: str, script: str, **changes: Any) -> Path:
        """Add a run whose interpreter has no packages, so that it starts fast."""
        return self.add_run(run_id, script, **{"python": str(empty_python()), **changes})

    event = TargetFolder.wait_for_event
    ended = TargetFolder.wait_for_end


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path)
    end_marked(tmp_path)


@pytest.fixture
def target(tmp_path: Path, engine: Any) -> Iterator[Any]:
    """A target whose runs are containers of a real engine."""
    from .container_targets import ContainerTarget

    yield ContainerTarget(tmp_path, engine)
    end_marked(tmp_path)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users can access. Other users cannot access the temporary folders of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="mlw-test-"))
    folder.chmod(0o755)
    yield folder
    end_marked(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def toolbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from .environment_builder import make_toolbox

    return make_toolbox(tmp_path_factory.mktemp("toolbox"))


@pytest.fixture
def builder(tmp_path: Path, toolbox: Path) -> Iterator[Any]:
    """A target on which environments are built."""
    from .environment_builder import EnvironmentBuilder

    environment_builder = EnvironmentBuilder(tmp_path, toolbox)
    yield environment_builder
    environment_builder.discard()


def delete_run(folder: Path) -> None:
    """Remove a run folder. Rename it first, so that a supervisor that is still writing cannot interfere."""
    gone = folder.parent.parent / f"deleted-{folder.name}"
    folder.rename(gone)
    shutil.rmtree(gone)
