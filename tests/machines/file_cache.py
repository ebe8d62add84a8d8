"""What takes long to make and is kept below .cache/ for the next time. The processes of one test run share it."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".cache"
_MONTH = 30 * 86400  # seconds, after which newer packages are looked for


def keep(name: str, about: str, make: Callable[[Path], object]) -> Path:
    """A folder that ``make`` fills, unless it did so before and ``about``, what it is made of, was the same."""
    folder = CACHE / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the tests' processes come here at the same time
        done = folder / "done"
        if not _is_current(done, about):
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            done.write_text(about)
    return folder


def _is_current(done: Path, about: str) -> bool:
    return done.exists() and done.read_text() == about and time.time() - done.stat().st_mtime < _MONTH
