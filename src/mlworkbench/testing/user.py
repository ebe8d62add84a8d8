"""An mlw user with an empty home folder, a separate history, and the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..remote.shared.untrusted_json import parse_json

MLW = Path(sys.executable).with_name("mlw")
PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))


class CommandResult:
    """Exit code and output of a command."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.stdout = out
        self.out = out.decode(errors="replace")
        self.err = err.decode(errors="replace")

    @property
    def run(self) -> str:
        """ID of the run that the command submitted."""
        match = re.search(r"^RunId: +(\S+)", self.err, re.MULTILINE)
        assert match, self
        return match.group(1)

    def __repr__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class User:
    """A user at a laptop. ``env``: environment variables for commands, which tests can change."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.store = folder / "store"
        self.home.mkdir()
        self.env = {
            "HOME": str(self.home),
            "MLW_HOME": str(self.store),
            "PATH": f"{MLW.parent}:{Path(PYTHON).parent}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": tempfile.gettempdir(),
        }
        if "PYTHONPATH" in os.environ:  # tests may load a plugin from there without installing it
            self.env["PYTHONPATH"] = os.environ["PYTHONPATH"]

    def mlw(
        self, *words: str, cwd: Path | None = None, env: dict[str, str] | None = None, **more: Any
    ) -> CommandResult:
        """Run a command until it exits.

        ``env`` adds environment variables, and ``more`` is passed to ``subprocess.run``.
        """
        more = {"stdin": subprocess.DEVNULL, "timeout": 120, **more}
        done = subprocess.run(
            [str(MLW), *words], cwd=cwd or self.home, env={**self.env, **(env or {})}, capture_output=True, **more
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def project(self, name: str = "demo", **files: str) -> Path:
        """Create a project with these files (``train="…"`` is ``train.py``) and return its folder."""
        result = self.mlw("project", "create", "--name", name)
        assert result.code == 0, result
        root = self.home / name
        for stem, text in files.items():
            (root / f"{stem}.py").write_text(text)
        return root

    def info(self, run: str, cwd: Path | None = None) -> dict[str, Any]:
        """Return what the history records about a run."""
        result = self.mlw("history", "info", run, "-o", "json", cwd=cwd)
        assert result.code == 0, result
        return dict(parse_json(result.out))

    def runs(self) -> list[dict[str, Any]]:
        """Return all runs in the history."""
        result = self.mlw("history", "list", "--all", "-o", "json")
        assert result.code == 0, result
        return list(parse_json(result.out))

    def folder(self, run: str) -> Path:
        """Return the run folder in the history."""
        return self.store / "runs" / run
