"""The behavior that every starter must have. Subclass the suite and define the fixture ``starter``:

    class TestMyStarter(StarterContract):
        @pytest.fixture
        def starter(self):
            return str(Path(my_plugin.__file__).with_name("my_starter.py"))

The value is the name of a built-in starter, or the absolute path of a plugin file. The starter runs
on this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..hosts.bundle import starter_name
from ..hosts.local_host import LocalHost, install
from ..remote.shared.layout import Root
from ..remote.shared.run_endings import CANCELLED
from ..remote.shared.starter_names import UNKNOWN
from ..remote.shared.untrusted_json import parse_json
from .processes import end_processes, run_processes
from .target_folder import PYTHON, TargetFolder
from .waiting import wait_until

_STATUS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from remote.starters.starter import load_starter
json.dump(load_starter(sys.argv[2]).status(json.load(sys.stdin)), sys.stdout)
"""
WAITING = "import time; print('up', flush=True); time.sleep(1000)"


class StarterContract:
    """Contract of a starter. Tests call the target's program, which exits while the run continues."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Iterator[TargetFolder]:
        folder = TargetFolder(tmp_path)
        folder.root.mkdir(mode=0o700)
        yield folder
        end_processes(tmp_path)

    @pytest.fixture
    def environment(self, tmp_path: Path) -> dict[str, str]:
        """Environment variables for the program on the target. Override if the starter needs more."""
        return {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    @pytest.fixture
    def target(self, folder: TargetFolder, starter: str, environment: dict[str, str]) -> Target:
        return Target(folder, starter, environment)

    def test_start_leaves_a_supervisor_behind(self, target: Target) -> None:
        run = target.add_run("r", "print('hello')")
        assert target.start("r")["claimed"] is True  # the program has exited; the supervisor must keep running
        target.folder.wait_for_end(run)
        assert (run / "log").read_text() == "hello\n"
        assert (run / "exit.json").exists()

    def test_secrets_reach_the_script_and_no_file_is_left(self, target: Target) -> None:
        run = target.add_run("r", "import os; print(len(os.environ['TOKEN']))")
        target.start("r", secrets={"TOKEN": "canary-canary"})
        target.folder.wait_for_end(run)
        assert (run / "log").read_text() == "13\n"
        wait_until(lambda: not target.is_supervised("r"))  # the supervisor moves files until then
        files = [path for path in target.folder.root.rglob("*") if path.is_file()]
        assert not [path for path in files if b"canary-canary" in path.read_bytes()]

    def test_a_run_starts_at_most_once(self, target: Target, tmp_path: Path) -> None:
        starts = tmp_path / "starts"
        run = target.add_run("r", f"open({str(starts)!r}, 'a').write('x'); print('up', flush=True)")
        for nonce in ("n1", "n1", "n2"):  # retry after a lost response, then another client
            assert target.start("r", nonce)["ok"] is True
        target.folder.wait_for_end(run)
        wait_until(lambda: not target.is_supervised("r"))
        assert target.start("r", "n3")["ok"] is True
        wait_until(lambda: not target.is_supervised("r"))
        assert starts.read_text() == "x"

    def test_status_of_many_runs_in_one_call(self, target: Target) -> None:
        runs = {run_id: target.add_run(run_id, WAITING) for run_id in ("a", "b")}
        for run_id in runs:
            target.start(run_id)
        handles = {run_id: target.handle(run) for run_id, run in runs.items()}
        wait_until(lambda: target.states(handles) == {"a": "running", "b": "running"})
        target.cancel("a")
        wait_until(lambda: target.states(handles) == {"a": "ended", "b": "running"})
        assert target.states({}) == {}

    def test_status_of_an_unknown_handle(self, target: Target) -> None:
        run = target.add_run("r", WAITING)
        target.start("r")
        handle = target.handle(run)
        unknown = {name: -1 if isinstance(value, int) else "no-such-handle" for name, value in handle.items()}
        wait_until(lambda: target.states({"r": handle, "other": unknown}) == {"r": "running", "other": "unknown"})

    def test_cancel_ends_the_run_and_can_be_repeated(self, target: Target) -> None:
        run = target.add_run("r", WAITING)
        target.start("r")
        wait_until(lambda: (run / "log").exists() and (run / "log").read_bytes())
        assert target.cancel("r")["ok"] is True
        assert target.cancel("r")["ok"] is True
        assert target.folder.wait_for_end(run)["ending"] == CANCELLED
        wait_until(lambda: not run_processes(run))
        assert target.cancel("r")["ok"] is True
        assert len([event for event in target.folder.events(run) if event["kind"] == "finished"]) == 1

    def test_a_run_that_was_canceled_before_never_starts(self, target: Target) -> None:
        run = target.add_run("r", WAITING)
        target.cancel("r")
        target.start("r")
        assert target.folder.wait_for_end(run)["ending"] == CANCELLED
        assert not (run / "started.json").exists()


class Target:
    """This machine as a target with the tested starter. Sends commands through ``LocalHost``, as a client does."""

    def __init__(self, folder: TargetFolder, starter: str, environment: dict[str, str]) -> None:
        self.folder = folder
        self._starter = starter
        self._environment = environment
        self._host = LocalHost(Root(str(folder.root)), environment, starter)

    def add_run(self, run_id: str, script: str) -> Path:
        """Write a run that has not been started."""
        return self.folder.add_run(run_id, script, starter=starter_name(self._starter))

    def start(self, run_id: str, nonce: str = "n1", secrets: dict[str, str] | None = None) -> dict[str, Any]:
        return self._host.call("start", run_id, [nonce], {"secrets": secrets or {}})

    def cancel(self, run_id: str) -> dict[str, Any]:
        return self._host.call("cancel", run_id, ["me", "0"], {})

    def is_supervised(self, run_id: str) -> bool:
        return self._host.news(run_id, {}, 1).supervised

    def handle(self, run: Path) -> dict[str, Any]:
        """Return the handle that the starter receives to find the run again."""
        stored = run / "starter.json"  # missing if the starter's handle is just the run folder
        handle = parse_json(stored.read_bytes())["handle"] if stored.exists() else {}
        return {**handle, "folder": str(run)}

    def states(self, handles: dict[str, dict[str, Any]]) -> dict[str, str]:
        """Call the starter's ``status`` once, in a separate process, as on a target."""
        program = install(self._host.root, self._starter)
        command = [PYTHON, "-I", "-S", "-c", _STATUS, str(program.parent), starter_name(self._starter)]
        done = subprocess.run(
            command, input=json.dumps(handles).encode(), env=self._environment, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr.decode()
        standings = parse_json(done.stdout)
        return {run_id: standings.get(run_id, {}).get("state", UNKNOWN) for run_id in handles}
