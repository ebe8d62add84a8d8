"""Fake target: its mlw folder, runs as a client would write them, and calls to its program."""

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
from ..remote.shared.protocol_versions import SPEC
from ..remote.shared.untrusted_json import parse_json
from .waiting import wait_until

PROGRAM = Path(remote.__file__).parent
# The base interpreter, because a target does not use the virtual environment of the tests.
PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))


class TargetFolder:
    """A separate target in a temporary folder, without a client or a history."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.share = folder / "share"
        self.python = PYTHON
        self.program = PROGRAM
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "MLW_SUPERVISOR": "1"}

    def add_run(self, run_id: str, script: str, **changes: Any) -> Path:
        """Write a run that has not been started and return its folder.

        Its code is in the content store, and its spec is in ``spec.json``. ``changes`` replaces keys of the
        spec, ``files`` adds files to the code, ``argv`` replaces the command, and ``python`` replaces its
        interpreter.
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
        """Do nothing. Override this to give the files to the target's user if that is a different user."""

    def call(self, verb: str, run_id: str, *words: str, **more: Any) -> dict[str, Any]:
        """Call the program on the target.

        ``message``: JSON for its standard input; ``env``: additional environment variables.
        """
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
        """Start a run. Calls with the same nonce belong to the same attempt."""
        return self.call("start", run_id, nonce, **more)

    def events(self, folder: Path) -> list[dict[str, Any]]:
        """Return the events in the journal of a run so far."""
        try:
            lines = (folder / "events.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [parse_json(line) for line in lines if line.strip()]

    def wait_for_event(self, folder: Path, kind: str, timeout: float = 60) -> dict[str, Any]:
        """Wait for an event of a kind and return the data of the first one."""

        def find() -> list[dict[str, Any]]:
            return [event["data"] for event in self.events(folder) if event["kind"] == kind]

        return wait_until(find, timeout)[0]

    def wait_for_end(self, folder: Path, timeout: float = 60) -> dict[str, Any]:
        """Wait until the run ends and return the data of its ``finished`` event."""
        return self.wait_for_event(folder, "finished", timeout)


def write_snapshot(store: Root, files: Mapping[str, str | bytes]) -> str:
    """Write code (path → content) to a content store and return the digest of the snapshot."""
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
