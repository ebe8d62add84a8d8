"""Build the sdist and the wheel from this tree, as a maintainer does for a release."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).with_name("uv")
# Trust the system's certificates, because a proxy in front of the package index may use one of them.
SETTINGS = {**os.environ, "UV_SYSTEM_CERTS": "1"}
# Uses the packages of the dev extra, so no index is needed.
WORDS = ("build", "-q", "--offline", "--no-build-isolation", "--python", sys.executable)


@dataclass(frozen=True)
class Archives:
    sdist: Path
    wheel: Path
    again: Path  # the wheel that is built from the sdist


def build_wheel(place: Path, source: Path = REPOSITORY) -> Path:
    return _build("--wheel", source, place, "*.whl")


def build_all(place: Path) -> Archives:
    sdist = _build("--sdist", REPOSITORY, place / "sdist", "*.tar.gz")
    return Archives(sdist, build_wheel(place / "wheel"), build_wheel(place / "again", sdist))


def _build(kind: str, source: Path, place: Path, name: str) -> Path:
    subprocess.run([UV, *WORDS, kind, "--out-dir", place, source], check=True)
    (archive,) = place.glob(name)
    return archive
