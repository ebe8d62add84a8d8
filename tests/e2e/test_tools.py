"""The tools that build environments on targets are those of the release, whatever a project or a cache says."""

from __future__ import annotations

import hashlib
import json
import zipfile
from importlib import metadata
from pathlib import Path

from tests.e2e.package_index import serving, wheel
from tests.e2e.test_environment import manage
from tests.e2e.test_environment_sources import SAY, ask


def trojan(folder: Path, version: str, mark: Path) -> Path:
    """A wheel of uv whose program leaves a mark."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"uv-{version}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    info = f"uv-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"uv-{version}.data/scripts/uv", f"#!/bin/sh\necho fired >> {mark}\nexit 1\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: uv\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-manylinux_2_17_x86_64\n")
        file.writestr(f"{info}/RECORD", "")
    return path


def test_a_project_does_not_choose_the_tools(user, tmp_path):
    """Neither by its index, nor by the lock of an earlier run."""
    root, mark = user.project("demo", say=SAY), tmp_path / "mark"
    manage(root, "local")
    with serving(tmp_path / "index") as index:
        bad = trojan(tmp_path / "index/main", metadata.version("uv"), mark)
        wheel(tmp_path / "index/main", "closed", "1.0", "the index")
        ask(root, f"--index-url {index.url}/main/simple", "closed")
        words = ("submit", "-c", "local", "say.py", "closed")
        done = user.mlw(*words, cwd=root)
        assert not mark.exists(), "a program of the project's index was started"
        assert done.out == "closed from the index\n", done
        assert not any("/uv/" in asked or "/uv-" in asked for asked in index.asked), "it was not even asked"
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
    """As if another version of mlw, or somebody else, had written the lock of the run."""
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
