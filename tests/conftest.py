"""What all tests share: a user with an own home, and the command line as a user calls it."""

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
from tests.fork_server import Forked, end_forked, is_forkable, run_forked, start_forked

# A machine that does other things, too, is slow now and then: that says nothing of the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: what we start must feel Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
pytest_plugins = ["tests.evidence", "tests.costs", "tests.machines.plugin", "tests.machines.spark"]
__all__ = ["MLW", "REAL_PYTHON", "Done", "Process", "User", "end_processes", "need"]

Process = subprocess.Popen[bytes] | Forked


def pytest_collection() -> None:
    gc.disable()  # what is collected stays until the end


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()  # else every full collection looks at thousands of tests that nobody lets go


class User(InstalledUser):
    """A user whose commands are forks of a process that has imported mlw."""

    installed = False  # whether every command is the installed program, and none a fork

    def mlw(self, *words: str, cwd: Path | None = None, env: dict[str, str] | None = None, **more: Any) -> Done:
        """The command to its end: a fork, or the installed program where the start of Python matters."""
        place, variables = cwd or self.home, {**self.env, **(env or {})}
        stdin, timeout = more.pop("stdin", subprocess.DEVNULL), more.pop("timeout", 120)
        if not more and not self.installed and is_forkable(variables):
            return Done(*run_forked(MLW, words, place, variables, stdin, timeout))
        return super().mlw(*words, cwd=cwd, env=env, stdin=stdin, timeout=timeout, **more)

    def start(self, *words: str, cwd: Path, env: dict[str, str] | None = None, **more: Any) -> Process:
        variables = {**self.env, **(env or {})}
        streams = {name: more.pop(name, subprocess.PIPE) for name in ("stdout", "stderr")}
        if not more and not self.installed and is_forkable(variables):
            return start_forked(MLW, words, cwd, variables, stdin=subprocess.DEVNULL, **streams)
        return subprocess.Popen([str(MLW), *words], cwd=cwd, env=variables, stdin=subprocess.DEVNULL, **streams, **more)


@pytest.fixture(autouse=True)
def _installed_program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of marked tests: those about the start itself, and the stories that a user would follow."""
    if request.node.get_closest_marker("installed"):
        monkeypatch.setattr(User, "installed", True)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    someone = User(tmp_path)
    yield someone
    end_processes(someone.store)


def end_processes(store: Path) -> None:
    """No test leaves a process behind: those that know the store by their environment or command line."""
    end_forked(str(store))
    processes.end_processes(store)


def need(program: str) -> str:
    """A program that the test cannot do without. On CI it must be there."""
    found = shutil.which(program)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{program} is not installed")
        pytest.skip(f"{program} is not installed")
    return found
