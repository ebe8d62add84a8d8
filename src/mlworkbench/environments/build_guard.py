"""A Python for uv that runs no code of packages: uv resolves with it, and cannot build with it.

uv reads the metadata of a source package as data where they are static, and runs its build script where they are not.
Its own ``--no-build`` does more than forbid that: versions without a wheel are skipped silently, and an older one is
chosen. So uv is not told to build nothing; it gets an interpreter with which no build can start. The interpreter is
a script that answers uv's question about itself and refuses everything else. In its answer every path of the real
Python is replaced by one below a regular file: there is nothing that uv could execute, and a build ends at its first
step, before its requirements are fetched. That this holds is tried out once for each uv, with a package of our own.
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

NOTHING = "mlwrunsnobuild"  # the regular file; uv names it when a build was about to start
_FORGE = """\
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
# uv starts its query with -I, and the programs of builds without; those are also in other folders.
_SCRIPT = """\
#!/bin/sh
[ "$0" = {own} ] && [ "$1" = -I ] || {{ echo "mlw runs no build scripts" >&2; exit 1; }}
exec {python} -I -S {forge} {own} {nothing} "$@"
"""
_BACKEND = "open({mark!r}, 'w').close()\n"
_PROJECT = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"

Run = Callable[[Sequence[str], Mapping[str, str], Path], "subprocess.CompletedProcess[str]"]


def guard_words(uv: str, run: Run, environ: Mapping[str, str], cache: Path) -> list[str]:
    """Options of uv with which it cannot build; raises SolveError if this uv builds all the same."""
    if os.name == "nt":
        # A script cannot be an interpreter there. Versions without a wheel are then not found at all.
        return ["--only-binary", ":all:", "--python", sys.executable]
    python = _make(cache / "uv-guard")
    about = os.stat(uv)
    checked = python.parent / hashlib.sha256(f"{uv} {about.st_size} {about.st_mtime_ns}".encode()).hexdigest()[:32]
    if not checked.exists():
        _try_out(python, run, environ)
        checked.touch()
    return ["--python", str(python)]


def was_stopped(said: str) -> bool:
    """Whether uv failed because a build was about to start. It breaks its lines anywhere."""
    return NOTHING in "".join(said.split())


def _make(folder: Path) -> Path:
    """The interpreter, always at the same path: uv caches the facts of an interpreter by its path."""
    key = hashlib.sha256(f"{sys.executable} {sys.version} {folder} {_SCRIPT} {_FORGE}".encode()).hexdigest()[:32]
    own = folder / key
    script = _SCRIPT.format(
        own=shlex.quote(str(own / "python")),
        python=shlex.quote(sys.executable),
        forge=shlex.quote(str(own / "forge.py")),
        nothing=shlex.quote(str(own / NOTHING)),
    )
    for name, text in ((NOTHING, ""), ("forge.py", _FORGE), ("python", script)):
        _write(own / name, text)
    return own / "python"


def _write(path: Path, text: str) -> None:
    """Whole or not at all: another mlw may do the same."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
    with open(part, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o700)) as file:
        file.write(text)
    os.replace(part, path)


def _try_out(python: Path, run: Run, environ: Mapping[str, str]) -> None:
    """Let uv resolve a package of ours whose build leaves a mark."""
    with tempfile.TemporaryDirectory(prefix="mlw-guard-") as name:
        folder = Path(name)
        mark = folder / "built"
        with zipfile.ZipFile(folder / "trial-1.0.zip", "w") as archive:
            archive.writestr(zipfile.ZipInfo("trial-1.0/pyproject.toml"), _PROJECT)
            archive.writestr(zipfile.ZipInfo("trial-1.0/backend.py"), _BACKEND.format(mark=str(mark)))
        (folder / "trial.in").write_text("./trial-1.0.zip\n")
        words = ["pip", "compile", "trial.in", "--quiet", "--no-config", "--no-index", "--offline"]
        done = run([*words, "--cache-dir", str(folder / "cache"), "--python", str(python)], environ, folder)
        if mark.exists() or not was_stopped(done.stderr):
            raise SolveError(
                f"cannot stop uv from running build scripts: {done.stderr.strip()[-300:] or 'it ran one'}",
                "install another version of uv in the environment of mlw",
            )
