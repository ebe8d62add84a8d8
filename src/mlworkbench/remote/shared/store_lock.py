"""The lock of the content store: many may rely on what it holds at once, and then nobody may remove from it.

A lock of the kernel on one file: gone with its holder, however that ends. It is held while a snapshot decides what
the store has, and during an upload; from then on the snapshot's list is young, and what a young list names is never
removed. A start holds it until its supervisor holds the lock of the run, because a purge removes everything.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager

from .file_lock import is_current, try_lock, wait_for_lock
from .layout import Root
from .tree import CLOEXEC, NOFOLLOW, make_private

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Iterator

_PATIENCE = 2.0
_PAUSE = 0.01
_TRIES = 10


@contextmanager
def relying_on_store(root: Root) -> Iterator[None]:
    """What the store holds stays. Waits for a removal under way."""
    held = _open(root)
    try:
        for _ in range(_TRIES):
            if held < 0:
                break
            wait_for_lock(held, shared=True)
            if is_current(held, _path(root)):
                break
            os.close(held)  # a purge removed the file while this process waited for it
            held = _open(root)
        yield
    finally:
        _close(held)


@contextmanager
def removing_from_store(root: Root) -> Iterator[bool]:
    """Whether nobody relies on the store now, nor will before this is over. A long snapshot is not waited for."""
    held = _open(root)
    try:
        yield held >= 0 and _alone(held) and is_current(held, _path(root))
    finally:
        _close(held)


def _open(root: Root) -> int:
    """-1 where nothing can be written: then nothing can be removed either."""
    try:
        make_private(root.path)
        return os.open(_path(root), os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC, 0o600)
    except OSError:
        return -1


def _path(root: Root) -> str:
    return os.path.join(root.path, "store.lock")


def _alone(held: int) -> bool:
    end = time.monotonic() + _PATIENCE
    while not try_lock(held):
        if time.monotonic() >= end:
            return False
        time.sleep(_PAUSE)
    return True


def _close(held: int) -> None:
    if held >= 0:
        os.close(held)
