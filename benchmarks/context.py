"""What all measurements share: scratch folders, projects of mlw, and its runs on disk."""

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
    """One call of ``make bench``. ``quick``: rounds of what takes less than a second; ``slow``: of the rest."""

    quick: int
    slow: int
    patience: float
    scratch: Path  # on the disk of the repository: room for gigabytes
    outside: Path  # in no git repository
    _settled: set[str] = field(default_factory=set)

    @classmethod
    def make(cls, quick: int, slow: int, patience: float) -> Context:
        CACHE.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=CACHE))
        outside = Path(tempfile.mkdtemp(prefix="mlw-bench-"))
        (scratch / "tmp").mkdir()
        venv.create(scratch / "python")
        return cls(quick, slow, patience, scratch, outside)

    def remove(self) -> None:
        self.settle()
        for folder in (self.scratch, self.outside):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def home(self) -> Path:
        return self.scratch / "home"

    @property
    def interpreter(self) -> Path:
        """What runs the scripts of all contestants: real (no pyenv shim), and with no packages to slow its start."""
        return self.scratch / "python" / "bin" / "python"

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join((str(self.interpreter.parent), os.environ.get("PATH", os.defpath)))
        return machine.environment(MLW_HOME=str(self.home), TMPDIR=str(self.scratch / "tmp"), PATH=path)

    def quiet(self) -> machine.Quiet:
        return machine.Quiet(self.patience)

    # -- projects ----------------------------------------------------------------------------------

    def project(self, name: str, parent: Path | None = None, git: bool = False) -> Path:
        """A new project with the scripts that we run; its interpreter is the real one."""
        parent = parent or self.outside
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
        for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "all")):
            self.call(Program(("git", *words), folder, self.environment))

    # -- programs ----------------------------------------------------------------------------------

    def mlw(self, folder: Path, *words: str) -> Program:
        return Program((MLW, *words), folder, self.environment)

    def python(self, folder: Path, *words: str) -> Program:
        return Program((str(self.interpreter), *words), folder, self.environment)

    def call(self, program: Program) -> str:
        """Its output; nothing is measured."""
        done = subprocess.run(
            program.command, cwd=program.folder, env=program.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(program.command)} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    # -- runs --------------------------------------------------------------------------------------

    def detach(self, folder: Path, *words: str) -> Path:
        """Submit and do not wait; the folder of the run."""
        answer: dict[str, str] = json.loads(self.call(self.mlw(folder, "submit", "--detach", "-o", "json", *words)))
        return self.home / "runs" / answer["run_id"]

    def settle(self) -> None:
        """Wait until no supervisor is at work any more: it tidies up after the end of its run."""
        runs = self.home / "runs"
        for name in sorted(os.listdir(runs)) if runs.is_dir() else ():
            if name not in self._settled:
                pid = await_supervisor(runs / name)
                while is_alive(pid):
                    time.sleep(0.002)
                self._settled.add(name)

    def forget(self, run: Path) -> None:
        """Give the room of a finished run back."""
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
    """Process number of the supervisor; it writes it down a moment after a detached submit has returned."""
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
