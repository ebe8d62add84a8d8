"""pytest fixtures for tests of plugins: ``pytest_plugins = ["mlworkbench.testing.fixtures"]`` loads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .fake_clock import FakeClock
from .fake_gpus import FakeGpus
from .processes import end_processes
from .target_folder import TargetFolder
from .user import User


@pytest.fixture
def mlw_user(tmp_path: Path) -> Iterator[User]:
    """A user with an empty home, and the installed mlw. Runs that are left running are killed."""
    user = User(tmp_path)
    yield user
    end_processes(user.store)


@pytest.fixture
def mlw_target_folder(tmp_path: Path) -> Iterator[TargetFolder]:
    """mlw's folder on a target of the test's own. Runs that are left running are killed."""
    folder = TargetFolder(tmp_path)
    yield folder
    end_processes(tmp_path)


@pytest.fixture
def mlw_gpus(tmp_path: Path) -> FakeGpus:
    """A host with fake GPUs, at first none. Needs a C compiler."""
    return FakeGpus(tmp_path)


@pytest.fixture
def mlw_clock() -> FakeClock:
    """A clock that moves only when the test says so."""
    return FakeClock()
