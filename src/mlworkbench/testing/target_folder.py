"""mlw's folder on a target, with runs in it as a client leaves them, and the program there called as a client does."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import remote
from ..remote.shared.layout import Root
from ..remote.shared.untrusted import parse_json
from ..remote.shared.versions import SPEC
from .waiting import wait_until

PROGRAM = Path(remote.__file__).parent
# The interpreter below a virtual environment, as on a target.
PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))


class TargetFolder:
    """A target of its own in a temporary folder. No client and no history is involved."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.share = folder / "share"
        self.python = PYTHON
        self.program = PROGRAM
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "MLW_SUPERVISOR": "1"}

    def add_run(self, run_id: str, script: str, **changes: Any) -> Path:
        """Write a run that has not started: its code in the content store, and ``spec.json``. Returns its folder.

        ``changes`` replaces keys of the spec. ``files`` adds files to the code, ``argv`` replaces the command, and
        ``python`` its interpreter.
        """
        digest = write_snapshot(Root(str(self.root)), {"main.py": script, **changes.pop("files", {})})
        folder = self.root / "runs" / run_id
        folder.mkdir(parents=True, mode=0o700)
        argv = changes.pop("argv", [changes.pop("python", PYTHON), "main.py"])
        spec = {
            "spec": SPEC,
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
        self.hand_over()
        return folder

    def hand_over(self) -> None:
        """Called after a test wrote files. Override it where the target's user is not the user of the tests."""

    def call(self, verb: str, run_id: str, *words: str, **more: Any) -> dict[str, Any]:
        """Call the program on the target. ``message``: what it reads from stdin; ``env``: more variables."""
        done = subprocess.run(
            [self.python, "-I", "-S", str(self.program / "__main__.py"), verb, str(self.root), run_id, *words],
            input=json.dumps(more.get("message") or {}).encode(),
            capture_output=True,
            env={**self.env, **more.get("env", {})},
            start_new_session=True,
            timeout=60,
        )
        assert done.stdout, done.stderr.decode()
        return dict(parse_json(done.stdout))

    def start(self, run_id: str, nonce: str = "n1", **more: Any) -> dict[str, Any]:
        """Start a run; the same nonce stands for the same attempt."""
        return self.call("start", run_id, nonce, **more)

    def events(self, folder: Path) -> list[dict[str, Any]]:
        """The event journal of a run so far."""
        try:
            lines = (folder / "events.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [parse_json(line) for line in lines if line.strip()]

    def wait_for_event(self, folder: Path, kind: str, timeout: float = 60) -> dict[str, Any]:
        """Data of the first event of a kind."""

        def find() -> list[dict[str, Any]]:
            return [event["data"] for event in self.events(folder) if event["kind"] == kind]

        return wait_until(find, timeout)[0]

    def wait_for_end(self, folder: Path, timeout: float = 60) -> dict[str, Any]:
        """How the run ended."""
        return self.wait_for_event(folder, "finished", timeout)


def write_snapshot(store: Root, files: Mapping[str, str | bytes]) -> str:
    """Write code to a content store: path → content. Returns the digest of the snapshot."""
    entries = sorted(_write_blob(store, path, content) for path, content in files.items())
    manifest = {"version": 1, "files": entries, "links": [], "folders": []}
    text = json.dumps(manifest, separators=(",", ":"), ensure_ascii=True).encode()
    digest = hashlib.sha256(text).hexdigest()
    Path(store.snapshots).mkdir(parents=True, exist_ok=True)
    Path(store.snapshot(digest)).write_bytes(text)
    return digest


def _write_blob(store: Root, path: str, content: str | bytes) -> list[Any]:
    data = content.encode() if isinstance(content, str) else content
    digest = hashlib.sha256(data).hexdigest()
    blob = Path(store.blob(digest))
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    return [path, digest, len(data), 0o644]
