"""The log of the server: internal errors, for debugging."""

from __future__ import annotations

import faulthandler
import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path

_OFTEN, _WINDOW = 5, 60.0  # messages of one kind, within this number of seconds
_KINDS = 100
# Any client can cause these, as often as it likes.
_THROTTLED = ("asyncio", "uvicorn.error", "mlworkbench.ui.connections")


class Throttle(logging.Filter):
    """Lets a few messages of a kind through, then counts the others, and adds their number to the next one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}  # when a window began, and messages in it

    def filter(self, record: logging.LogRecord) -> bool:
        """A kind is the first line, before values are filled in: further lines of asyncio's name the socket."""
        kind = (record.name, str(record.msg).partition("\n")[0])
        now = self._clock()
        began, count = self._kinds.get(kind, (now, 0))
        if now - began >= _WINDOW:
            if count > _OFTEN:
                record.msg = f"{record.msg}\n({count - _OFTEN} similar messages omitted)"
            began, count = now, 0
        if kind not in self._kinds and len(self._kinds) >= _KINDS:
            self._kinds.pop(next(iter(self._kinds)))
        self._kinds[kind] = (began, count + 1)
        return count < _OFTEN


def log_to(path: Path) -> None:
    """The file is opened at once: when descriptors have run out, it is too late for it."""
    path.touch(mode=0o600)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # else whoever sends nonsense could fill the disk
    throttle = Throttle()
    for name in _THROTTLED:
        logging.getLogger(name).addFilter(throttle)
    if hasattr(faulthandler, "register"):  # `kill -USR1` has a server that hangs write down where
        faulthandler.register(signal.SIGUSR1, open(path, "a"), all_threads=True)
