"""pytest fixtures for plugin tests: ``pytest_plugins = ["mlworkbench.testing.fixtures"]``."""

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
    """A user with an empty home folder and the installed mlw. Runs that remain after the test are killed."""
    user = User(tmp_path)
    yield user
    end_processes(user.store)


@pytest.fixture
def mlw_target_folder(tmp_path: Path) -> Iterator[TargetFolder]:
    """The mlw folder on a separate target. Runs that remain after the test are killed."""
    folder = TargetFolder(tmp_path)
    yield folder
    end_processes(tmp_path)


@pytest.fixture
def mlw_gpus(tmp_path: Path) -> FakeGpus:
    """Fake GPUs of a host, initially none. Requires a C compiler."""
    return FakeGpus(tmp_path)


@pytest.fixture
def mlw_clock() -> FakeClock:
    """A clock that advances only when the test moves it."""
    return FakeClock()
