"""A cache below .cache/ for files that take long to create, shared by the processes of a test run."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".cache"
_MONTH = 30 * 86400  # seconds until the cache is rebuilt with newer packages


def cached_folder(name: str, about: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that ``make`` fills, unless a cached one has the same ``about`` (its inputs)."""
    folder = CACHE / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may ask for the same folder
        done = folder / "done"
        if not _is_up_to_date(done, about):
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            done.write_text(about)
    return folder


def _is_up_to_date(done: Path, about: str) -> bool:
    return done.exists() and done.read_text() == about and time.time() - done.stat().st_mtime < _MONTH
