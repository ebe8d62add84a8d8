"""The real supervisor as a real process, on a run folder written by hand: no client of ours is involved."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mlworkbench.remote as remote

REMOTE = Path(remote.__file__).parent
PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))


class Place:
    """A target: its root folder, runs put into it, and our program called as a client would call it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.share = folder / "share"
        self.python = PYTHON
        self.program = REMOTE
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "MLW_SUPERVISOR": "1"}

    def run(self, run_id: str, script: str, **changes: Any) -> Path:
        """A run folder as a client leaves it: code in the store, spec.json, nothing else."""
        files = changes.pop("files", {})
        manifest = {
            "version": 1,
            "files": sorted(self._store(name, text) for name, text in {"main.py": script, **files}.items()),
            "links": [],
            "folders": [],
        }
        text = json.dumps(manifest, separators=(",", ":"), ensure_ascii=True).encode()
        digest = hashlib.sha256(text).hexdigest()
        (self.root / "snapshots").mkdir(parents=True, exist_ok=True)
        (self.root / "snapshots" / f"{digest}.json").write_bytes(text)
        folder = self.root / "runs" / run_id
        folder.mkdir(parents=True, mode=0o700)
        argv = changes.pop("argv", [changes.pop("python", PYTHON), "main.py"])
        spec = {
            "spec": 1,
            "id": run_id,
            "project_id": "p",
            "snapshot": digest,
            "commands": [{"step": "run", "argv": argv}],
            "environment": {
                "PYTHONUNBUFFERED": "1",
                "MLW_RUN_ID": run_id,
                "MLW_RUN_FOLDER": str(folder),
                "AZUREML_NATIVE_SHARE_DIRECTORY": f"{self.share}/",
            },
            "inherit": ["PATH", "HOME"],
            "timeout": None,
            "grace": 30.0,
            **changes,
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        return folder

    def _store(self, name: str, text: str) -> list[Any]:
        content = text.encode()
        digest = hashlib.sha256(content).hexdigest()
        blob = self.root / "blobs" / digest[:2] / digest[2:]
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        return [name, digest, len(content), 0o644]

    def call(
        self, verb: str, run_id: str, *words: str, message: dict[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        done = subprocess.run(
            [self.python, "-I", "-S", str(self.program / "__main__.py"), verb, str(self.root), run_id, *words],
            input=json.dumps(message or {}).encode(),
            capture_output=True,
            env={**self.env, **more.get("env", {})},
            start_new_session=True,
            timeout=60,
        )
        assert done.stdout, done.stderr.decode()
        return dict(json.loads(done.stdout))

    def start(self, run_id: str, nonce: str = "n1", **more: Any) -> dict[str, Any]:
        return self.call("start", run_id, nonce, **more)

    def events(self, folder: Path) -> list[dict[str, Any]]:
        try:
            lines = (folder / "events.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.strip()]

    def event(self, folder: Path, kind: str, timeout: float = 60) -> dict[str, Any]:
        """The first event of a kind; waits for it."""
        return until(lambda: next((e["data"] for e in self.events(folder) if e["kind"] == kind), None), timeout)

    def ended(self, folder: Path, timeout: float = 60) -> dict[str, Any]:
        return self.event(folder, "finished", timeout)


def until(look: Callable[[], Any], timeout: float = 60) -> Any:
    """Wait for a condition; what it gave."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen in time")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def marked(folder: Path) -> list[int]:
    """Pids that carry the run's mark, whatever their parents are."""
    mark = f"MLW_RUN_FOLDER={folder}".encode()
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if alive(pid) and mark in environment(pid)]


def environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path)
    end_marked(tmp_path)


@pytest.fixture
def spot(tmp_path: Path, engine: Any) -> Iterator[Any]:
    """A target whose runs are containers of a real engine."""
    from .contained import Spot

    yield Spot(tmp_path, engine)
    end_marked(tmp_path)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users can reach. pytest's own are closed to others, again whenever a session starts."""
    folder = Path(tempfile.mkdtemp(prefix="mlw-test-"))
    folder.chmod(0o755)
    yield folder
    end_marked(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def toolbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from .building import make_toolbox

    return make_toolbox(tmp_path_factory.mktemp("toolbox"))


@pytest.fixture
def yard(tmp_path: Path, toolbox: Path) -> Iterator[Any]:
    """A target on which environments are built."""
    from .building import Yard

    made = Yard(tmp_path, toolbox)
    yield made
    made.discard()


def delete_run(folder: Path) -> None:
    """Its supervisor, which goes on to write, must not be faster than whoever deletes."""
    gone = folder.parent.parent / f"deleted-{folder.name}"
    folder.rename(gone)
    shutil.rmtree(gone)


def end_marked(folder: Path) -> None:
    """No test leaves a process behind."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                mark = os.fsencode(folder)
                if mark in (entry / "environ").read_bytes() or mark in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue
