"""Context that all measurements share: scratch folders, mlw projects, and their runs on disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
from timing import Program

REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = REPOSITORY / ".cache" / "bench"
SCRIPTS = Path(__file__).resolve().parent / "scripts"
MLW = str(Path(sys.executable).parent / "mlw")


@dataclass
class Context:
    """One call of ``make bench``. ``quick`` and ``slow``: rounds of actions that take less, or more, than a second."""

    quick: int
    slow: int
    patience: float
    scratch: Path  # on the disk of the repository, which has space for gigabytes
    workspace: Path  # outside of any git repository
    program: str = MLW
    _settled: set[str] = field(default_factory=set)

    @classmethod
    def make(cls, quick: int, slow: int, patience: float, program: str = MLW) -> Context:
        CACHE.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=CACHE))
        workspace = Path(tempfile.mkdtemp(prefix="mlw-bench-"))
        (scratch / "tmp").mkdir()
        venv.create(scratch / "python")
        return cls(quick, slow, patience, scratch, workspace, program)

    def remove(self) -> None:
        self.settle()
        for folder in (self.scratch, self.workspace):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def home(self) -> Path:
        return self.scratch / "home"

    @property
    def interpreter(self) -> Path:
        """Return the Python for the scripts of all contestants: no shim, and without packages that slow its start."""
        return self.scratch / "python" / "bin" / "python"

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join((str(self.interpreter.parent), os.environ.get("PATH", os.defpath)))
        return machine.environment(MLW_HOME=str(self.home), TMPDIR=str(self.scratch / "tmp"), PATH=path)

    def quiet(self) -> machine.Quiet:
        return machine.Quiet(self.patience)

    # -- projects ----------------------------------------------------------------------------------

    def project(self, name: str, parent: Path | None = None, git: bool = False) -> Path:
        """Create a project with the benchmark scripts. Its runs use ``interpreter``."""
        parent = parent or self.workspace
        self.call(self.mlw(parent, "project", "create", "--name", name, "--path", str(parent)))
        folder = parent / name
        with open(folder / "aml_config" / "local.compute", "a") as file:
            file.write(f"\npythonLocation: {self.interpreter}\n")
        for script in SCRIPTS.glob("*.py"):
            shutil.copy(script, folder)
        if git:
            self._commit_all(folder)
        return folder

    def _commit_all(self, folder: Path) -> None:
        who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
        for arguments in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "all")):
            self.call(Program(("git", *arguments), folder, self.environment))

    # -- programs ----------------------------------------------------------------------------------

    def mlw(self, folder: Path, *arguments: str) -> Program:
        return Program((self.program, *arguments), folder, self.environment)

    def python(self, folder: Path, *arguments: str) -> Program:
        return Program((str(self.interpreter), *arguments), folder, self.environment)

    def call(self, program: Program) -> str:
        """Run a program and return its output, without measuring it."""
        done = subprocess.run(
            program.command, cwd=program.folder, env=program.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(program.command)} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    # -- runs --------------------------------------------------------------------------------------

    def detach(self, folder: Path, *arguments: str) -> Path:
        """Submit without waiting, and return the run folder."""
        answer: dict[str, str] = json.loads(self.call(self.mlw(folder, "submit", "--detach", "-o", "json", *arguments)))
        return self.home / "runs" / answer["run_id"]

    def settle(self) -> None:
        """Wait until all supervisors have ended, because they clean up after their runs."""
        runs = self.home / "runs"
        for name in sorted(os.listdir(runs)) if runs.is_dir() else ():
            if name not in self._settled:
                pid = await_supervisor(runs / name)
                while is_alive(pid):
                    time.sleep(0.002)
                self._settled.add(name)

    def forget(self, run: Path) -> None:
        """Free the space of a finished run."""
        self.settle()
        shutil.rmtree(run)

    def newest(self) -> Path:
        return max((self.home / "runs").iterdir(), key=lambda run: (run / "spec.json").stat().st_mtime_ns)


def events(run: Path) -> list[dict[str, Any]]:
    try:
        text = (run / "events.jsonl").read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def await_supervisor(run: Path) -> int:
    """Return the supervisor's PID, which it writes shortly after a detached submit has returned."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        accepted = [event["data"]["pid"] for event in events(run) if event["kind"] == "accepted"]
        if accepted:
            return int(accepted[-1])
        time.sleep(0.002)
    raise RuntimeError(f"nobody accepted run {run.name}")


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
