"""A mirror of uv's Pythons with one Python, in the list format that uv documents."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from tests.e2e.package_index import Index
from tests.machines.channel import VERSION, pack, python_files
from tests.machines.laptop import Laptop

KEY = f"cpython-{VERSION}-linux-x86_64-gnu"
NAME = f"cpython-{VERSION}+20240107-x86_64-unknown-linux-gnu-install_only.tar.gz"


def use_mirror(laptop: Laptop, mirror: Index) -> None:
    """Make managed environments use the mirror: no Python is on PATH, so all targets use the same one."""
    programs = laptop.home / "programs"
    programs.mkdir()
    docker = shutil.which("docker")
    if docker:
        (programs / "docker").symlink_to(docker)
    laptop.env["PATH"] = f"{programs}:/usr/sbin:/sbin"
    laptop.env["UV_PYTHON_DOWNLOADS_JSON_URL"] = f"{mirror.url}/pythons/downloads.json"


def write_mirror(folder: Path, address: str) -> Path:
    """Write list and archive into a folder served at ``address``; return the path of the list."""
    files, links, executable = python_files(folder / "python-to-patch")
    inside = {f"python/{path}": content for path, content in files.items()}
    data = pack(
        inside, {f"python/{path}": content for path, content in links.items()}, [f"python/{executable}"], "w:gz"
    )
    (folder / "20240107").mkdir()
    (folder / "20240107" / NAME).write_bytes(data)
    major, minor, patch = map(int, VERSION.split("."))
    entry = {
        **{"name": "cpython", "arch": {"family": "x86_64", "variant": None}, "os": "linux", "libc": "gnu"},
        **{"major": major, "minor": minor, "patch": patch, "prerelease": "", "variant": None, "build": "20240107"},
        "url": f"{address}/20240107/{NAME}",
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    path = folder / "downloads.json"
    path.write_text(json.dumps({KEY: entry}))
    return path
