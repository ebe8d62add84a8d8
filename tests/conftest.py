"""What all tests share: a user with an own home, and the command line as a user calls it."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.fork_server import Forked, end_forked, is_forkable, run_forked, start_forked

# A machine that does other things, too, is slow now and then: that says nothing of the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
MLW = Path(sys.executable).with_name("mlw")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: what we start must feel Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
pytest_plugins = ["tests.evidence", "tests.costs", "tests.machines.plugin", "tests.machines.spark"]
REAL_PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))


Process = subprocess.Popen[bytes] | Forked


def pytest_collection() -> None:
    gc.disable()  # what is collected stays until the end


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()  # else every full collection looks at thousands of tests that nobody lets go


class User:
    """One person at a laptop: an empty home, a store of their own, and mlw."""

    installed = False  # whether every command is the installed program, and none a fork

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.store = place / "store"
        self.home.mkdir()
        self.env = {
            "HOME": str(self.home),
            "MLW_HOME": str(self.store),
            "PATH": f"{MLW.parent}:{Path(REAL_PYTHON).parent}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": tempfile.gettempdir(),
        }

    def mlw(self, *words: str, cwd: Path | None = None, env: dict[str, str] | None = None, **more: Any) -> Done:
        """The command to its end: a fork, or the installed program where the start of Python matters."""
        place, variables = cwd or self.home, {**self.env, **(env or {})}
        stdin, timeout = more.pop("stdin", subprocess.DEVNULL), more.pop("timeout", 120)
        if not more and not self.installed and is_forkable(variables):
            return Done(*run_forked(MLW, words, place, variables, stdin, timeout))
        done = subprocess.run(
            [str(MLW), *words], cwd=place, env=variables, capture_output=True, stdin=stdin, timeout=timeout, **more
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str, cwd: Path, env: dict[str, str] | None = None, **more: Any) -> Process:
        variables = {**self.env, **(env or {})}
        streams = {name: more.pop(name, subprocess.PIPE) for name in ("stdout", "stderr")}
        if not more and not self.installed and is_forkable(variables):
            return start_forked(MLW, words, cwd, variables, stdin=subprocess.DEVNULL, **streams)
        return subprocess.Popen([str(MLW), *words], cwd=cwd, env=variables, stdin=subprocess.DEVNULL, **streams, **more)

    def project(self, name: str = "demo", **files: str) -> Path:
        """A new project with these files in it (train.py given as train='…')."""
        done = self.mlw("project", "create", "--name", name)
        assert done.code == 0, done
        root = self.home / name
        for stem, text in files.items():
            (root / f"{stem}.py").write_text(text)
        return root

    def info(self, run: str, cwd: Path | None = None) -> dict[str, Any]:
        done = self.mlw("history", "info", run, "-o", "json", cwd=cwd)
        assert done.code == 0, done
        return dict(json.loads(done.out))

    def runs(self) -> list[dict[str, Any]]:
        done = self.mlw("history", "list", "--all", "-o", "json")
        assert done.code == 0, done
        return list(json.loads(done.out))

    def folder(self, run: str) -> Path:
        return self.store / "runs" / run


class Done:
    """How a command ended and what it said."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.stdout = out
        self.out = out.decode(errors="replace")
        self.err = err.decode(errors="replace")

    @property
    def run(self) -> str:
        found = re.search(r"^RunId: +(\S+)", self.err, re.MULTILINE)
        assert found, self
        return found.group(1)

    def __repr__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


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
    mark = os.fsencode(store)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "environ").read_bytes() or mark in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue


def need(program: str) -> str:
    """A program that the test cannot do without. On CI it must be there."""
    found = shutil.which(program)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{program} is not installed")
        pytest.skip(f"{program} is not installed")
    return found
