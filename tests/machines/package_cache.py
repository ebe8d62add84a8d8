"""mlw's data folders below .cache/ that keep packages between sessions: downloaded, unpacked, and compiled.

A data folder has the same path in every session, because uv unpacks a package again if its file has another path.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.machines.file_cache import CACHE, cached_folder


@contextlib.contextmanager
def cached_store(name: str, about: str) -> Iterator[Path]:
    """Yield a data folder that no other test process uses now. At the end, only its caches remain."""
    folder, lock = _first_free(name, about)
    store = folder / "store"
    try:
        _remove_all_but_caches(store)  # left by a killed session
        unpacked = _wheels(store)
        yield store
        if _wheels(store) != unpacked:
            _save_bytecode(store)
        _remove_all_but_caches(store)
    finally:
        os.close(lock)


def _first_free(name: str, about: str) -> tuple[Path, int]:
    number = 0
    while (lock := _lock(CACHE / f"{name}-{number}.used")) is None:
        number += 1
    return cached_folder(f"{name}-{number}", about, _make), lock


def _lock(path: Path) -> int | None:
    """Return the lock, or None if another process has it."""
    path.parent.mkdir(exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _make(folder: Path) -> None:
    for path in (folder, folder / "store", folder / "store" / "cache"):
        path.mkdir(mode=0o700)


def _remove_all_but_caches(store: Path) -> None:
    for path in store.iterdir():
        if path.name != "cache":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _wheels(store: Path) -> set[str]:
    return {path.name for path in _unpacked(store).glob("*")}


def _unpacked(store: Path) -> Path:
    return store / "cache" / "uv" / "archive-v0"


def _save_bytecode(store: Path) -> None:
    """Link the bytecode of all environments into uv's unpacked wheels, so that later environments contain it.

    Bytecode is valid for all hard links of a source file.
    """
    wheels = {entry.inode(): Path(entry.path) for entry in _sources(_unpacked(store))}
    for source in map(Path, (entry.path for entry in _sources(store / "envs") if entry.inode() in wheels)):
        name = f"__pycache__/{source.stem}.{sys.implementation.cache_tag}.pyc"
        twin = wheels[source.stat().st_ino].with_name("__pycache__")
        with contextlib.suppress(FileNotFoundError, FileExistsError):  # of another Python, or saved before
            (source.parent / name).stat()
            twin.mkdir(exist_ok=True)
            os.link(source.parent / name, twin.parent / name)


def _sources(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            # uv moves the listed files out of a wheel's folder NAME.data, which must then be empty.
            if entry.is_dir(follow_symlinks=False) and not entry.name.endswith(".data"):
                yield from _sources(Path(entry.path))
            elif entry.name.endswith(".py"):
                yield entry
