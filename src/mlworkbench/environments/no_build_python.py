"""A Python interpreter for uv that cannot build packages, so that resolving never runs package code.

uv reads the static metadata of source packages as data. If the metadata is not static, uv runs the
build script. The option ``--no-build`` is not an alternative: it silently skips versions without a
wheel and selects an older version. Therefore uv gets an interpreter that cannot start a build: a
script that answers uv's query about the interpreter and rejects everything else. Its answer
replaces every path of the real Python with a path below a regular file, so there is nothing to
execute. A build fails at its first step, before its requirements are downloaded. mlw verifies this
once for each uv binary with a test package.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import SolveError

GUARD_FILE = "mlwrunsnobuild"  # the regular file in these paths; uv prints the name when it tries to build
_FAKE_PATHS_SCRIPT = """\
import json, os, subprocess, sys

own, nothing, *question = sys.argv[1:]
answer = subprocess.run([sys.executable, *question], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)


def forge(key, value):
    if isinstance(value, dict):
        return {name: forge(name, one) for name, one in value.items()}
    if isinstance(value, list):
        return [one for one in value if not isinstance(one, str) or not os.path.isabs(one)]
    if not isinstance(value, str) or not os.path.isabs(value):
        return value
    return own if key == "sys_executable" else os.path.join(nothing, key)


facts = json.loads(answer.stdout)
if not {"sys_executable", "sys_base_executable", "sys_base_prefix", "virtualenv"} <= set(facts):
    sys.exit("this version of uv asks for facts that mlw does not provide")
facts["virtualenv"] = {name: os.path.join(nothing, name) for name in facts["virtualenv"]}
print(json.dumps(forge("", facts)))
"""
# uv runs its query with -I. Build programs run without -I and from other folders.
_SCRIPT = """\
#!/bin/sh
[ "$0" = {own} ] && [ "$1" = -I ] || {{ echo "mlw runs no build scripts" >&2; exit 1; }}
exec {python} -I -S {forge} {own} {nothing} "$@"
"""
_BACKEND = "open({mark!r}, 'w').close()\n"
_PROJECT = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"

Run = Callable[[Sequence[str], Mapping[str, str], Path], "subprocess.CompletedProcess[str]"]


def guard_options(uv: str, run: Run, environ: Mapping[str, str], cache: Path) -> list[str]:
    """Return options that prevent uv from building; raise SolveError if this uv builds anyway."""
    if os.name == "nt":
        # On Windows, a script cannot serve as an interpreter, so versions without a wheel are not found at all.
        return ["--only-binary", ":all:", "--python", sys.executable]
    python = _write_interpreter(cache / "uv-guard")
    status = os.stat(uv)
    marker = python.parent / hashlib.sha256(f"{uv} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:32]
    if not marker.exists():
        _verify_guard(python, run, environ)
        marker.touch()
    return ["--python", str(python)]


def was_build_blocked(stderr: str) -> bool:
    """Return whether uv failed because it tried to start a build. uv may wrap its output anywhere."""
    return GUARD_FILE in "".join(stderr.split())


def _write_interpreter(folder: Path) -> Path:
    """Write the interpreter, always to the same path, because uv caches interpreter facts by path."""
    key = hashlib.sha256(
        f"{sys.executable} {sys.version} {folder} {_SCRIPT} {_FAKE_PATHS_SCRIPT}".encode()
    ).hexdigest()[:32]
    location = folder / key
    script = _SCRIPT.format(
        own=shlex.quote(str(location / "python")),
        python=shlex.quote(sys.executable),
        forge=shlex.quote(str(location / "forge.py")),
        nothing=shlex.quote(str(location / GUARD_FILE)),
    )
    for name, text in ((GUARD_FILE, ""), ("forge.py", _FAKE_PATHS_SCRIPT), ("python", script)):
        _write(location / name, text)
    return location / "python"


def _write(path: Path, text: str) -> None:
    """Write a file atomically, because another mlw process may be writing it, too."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
    with open(temporary, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o700)) as file:
        file.write(text)
    os.replace(temporary, path)


def _verify_guard(python: Path, run: Run, environ: Mapping[str, str]) -> None:
    """Check uv with a test package whose build creates a marker file; raise SolveError if uv builds it."""
    with tempfile.TemporaryDirectory(prefix="mlw-guard-") as name:
        folder = Path(name)
        mark = folder / "built"
        with zipfile.ZipFile(folder / "trial-1.0.zip", "w") as archive:
            archive.writestr(zipfile.ZipInfo("trial-1.0/pyproject.toml"), _PROJECT)
            archive.writestr(zipfile.ZipInfo("trial-1.0/backend.py"), _BACKEND.format(mark=str(mark)))
        (folder / "trial.in").write_text("./trial-1.0.zip\n")
        arguments = ["pip", "compile", "trial.in", "--quiet", "--no-config", "--no-index", "--offline"]
        result = run([*arguments, "--cache-dir", str(folder / "cache"), "--python", str(python)], environ, folder)
        if mark.exists() or not was_build_blocked(result.stderr):
            raise SolveError(
                f"cannot stop uv from running build scripts: {result.stderr.strip()[-300:] or 'it ran one'}",
                "install another version of uv in the environment of mlw",
            )
