"""Targets build environments with the tools of the release, regardless of projects and caches."""

from __future__ import annotations

import hashlib
import json
import zipfile
from importlib import metadata
from pathlib import Path

from tests.e2e.package_index import serve_index, wheel
from tests.e2e.test_environment import enable_managed_environment
from tests.e2e.test_environment_sources import SCRIPT, write_requirements


def trojan(folder: Path, version: str, mark: Path) -> Path:
    """Write a uv wheel whose program leaves a marker file, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"uv-{version}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    info = f"uv-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"uv-{version}.data/scripts/uv", f"#!/bin/sh\necho fired >> {mark}\nexit 1\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: uv\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-manylinux_2_17_x86_64\n")
        file.writestr(f"{info}/RECORD", "")
    return path


def test_project_cannot_choose_build_tools(user, tmp_path):
    """Neither the project's index nor the lock file of an earlier run can replace the tool."""
    root, mark = user.project("demo", say=SCRIPT), tmp_path / "mark"
    enable_managed_environment(root, "local")
    with serve_index(tmp_path / "index") as index:
        bad = trojan(tmp_path / "index/main", metadata.version("uv"), mark)
        wheel(tmp_path / "index/main", "closed", "1.0", "the index")
        write_requirements(root, f"--index-url {index.url}/main/simple", "closed")
        arguments = ("submit", "-c", "local", "say.py", "closed")
        done = user.mlw(*arguments, cwd=root)
        assert not mark.exists(), "a program of the project's index was started"
        assert done.out == "closed from the index\n", done
        assert not any("/uv/" in path or "/uv-" in path for path in index.asked), "it was not even asked"
        entry = {"name": "uv", "version": metadata.version("uv"), "url": f"{index.url}/main/{bad.name}"}
        entry["sha256"] = hashlib.sha256(bad.read_bytes()).hexdigest()
        change_tools(user, entry)
        assert user.mlw("history", "rebuild").code == 0
        assert user.mlw("environment", "remove", "--unused", "--caches", "-y", cwd=root).code == 0
        (run,) = json.loads(user.mlw("history", "list", "-o", "json", cwd=root).out)
        again = user.mlw("submit", "-c", "local", "--locked", run["run_id"], "say.py", "closed", cwd=root)
    assert again.out == "closed from the index\n", again
    assert not mark.exists()


def change_tools(user, entry):
    """Replace the tools in the run's lock file, as another version of mlw or another program could."""
    changed = 0
    for path in user.home.parent.rglob("*.json"):
        text = path.read_text(errors="replace")
        if '"tools"' in text and "closed" in text:
            data = json.loads(text)
            lock = data.get("lock") or data
            if isinstance(lock, dict) and "tools" in lock:
                lock["tools"] = [entry]
                path.chmod(0o600)
                path.write_text(json.dumps(data))
                changed += 1
    assert changed, "no lock was found"
