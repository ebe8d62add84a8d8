"""Fixtures that all tests share: a user with a separate home, and the command line."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from mlworkbench.testing import CommandResult as Done
from mlworkbench.testing import User as InstalledUser
from mlworkbench.testing import processes
from mlworkbench.testing.user import MLW
from mlworkbench.testing.user import PYTHON as REAL_PYTHON
from tests.empty_python import use_empty_python
from tests.fork_server import Forked, end_forked, is_forkable, run_forked, start_forked
from tests.ready_bundle import provide_bundle

# No deadlines: a busy machine can be slow without any defect in the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # child processes must receive Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
_MACHINES = [f"tests.machines.{name}" for name in ("plugin", "spark", "slurm")]
pytest_plugins = ["tests.evidence", "tests.costs", *_MACHINES]
__all__ = ["MLW", "REAL_PYTHON", "Done", "Process", "User", "end_processes", "need"]

Process = subprocess.Popen[bytes] | Forked


def pytest_collection() -> None:
    gc.disable()  # nothing can be freed: collected tests stay in memory until the end


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()  # otherwise every full garbage collection scans thousands of collected tests


class User(InstalledUser):
    """A user whose commands are forks of a process that has imported mlw."""

    installed = False  # True: run the installed program for every command instead of a fork

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        use_empty_python(self.env)

    def mlw(self, *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None, **more: Any) -> Done:
        """Run a command to completion, as a fork or as the installed program where Python startup matters."""
        place, variables = cwd or self.home, {**self.env, **(env or {})}
        stdin, timeout = more.pop("stdin", subprocess.DEVNULL), more.pop("timeout", 120)
        if not more and not self.installed and is_forkable(variables):
            provide_bundle(self.store, arguments, variables)
            return Done(*run_forked(MLW, arguments, place, variables, stdin, timeout))
        return super().mlw(*arguments, cwd=cwd, env=env, stdin=stdin, timeout=timeout, **more)

    def start(self, *arguments: str, cwd: Path, env: dict[str, str] | None = None, **more: Any) -> Process:
        variables = {**self.env, **(env or {})}
        streams = {name: more.pop(name, subprocess.PIPE) for name in ("stdout", "stderr")}
        if not more and not self.installed and is_forkable(variables):
            provide_bundle(self.store, arguments, variables)
            return start_forked(MLW, arguments, cwd, variables, stdin=subprocess.DEVNULL, **streams)
        return subprocess.Popen(
            [str(MLW), *arguments], cwd=cwd, env=variables, stdin=subprocess.DEVNULL, **streams, **more
        )


@pytest.fixture(autouse=True)
def _installed_program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the installed program in marked tests: tests of startup, and complete user stories."""
    if request.node.get_closest_marker("installed"):
        monkeypatch.setattr(User, "installed", True)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    someone = User(tmp_path)
    yield someone
    end_processes(someone.store)


def end_processes(store: Path) -> None:
    """Kill every process whose environment or command line contains the store."""
    end_forked(str(store))
    processes.end_processes(store)


def need(program: str) -> str:
    """Return the path of a program. If it is not installed, skip the test, or fail on CI."""
    path = shutil.which(program)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{program} is not installed")
        pytest.skip(f"{program} is not installed")
    return path
