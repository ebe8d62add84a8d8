"""Server log of internal errors, for debugging."""

from __future__ import annotations

import faulthandler
import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path

_MAX_REPEATS, _WINDOW = 5, 60.0  # maximum messages of one kind within this number of seconds
_MAX_KINDS = 100
# Any client can cause these messages, at any rate.
_THROTTLED = ("asyncio", "uvicorn.error", "mlworkbench.ui.connection_limits")


class Throttle(logging.Filter):
    """Filter that passes a few messages of each kind.

    It counts the others and adds their number to the next message of that kind.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}  # start of the window, number of messages in it

    def filter(self, record: logging.LogRecord) -> bool:
        """Filter by kind, which is the first line of the unformatted message.

        The other lines of an asyncio message identify the socket.
        """
        kind = (record.name, str(record.msg).partition("\n")[0])
        now = self._clock()
        started, count = self._kinds.get(kind, (now, 0))
        if now - started >= _WINDOW:
            if count > _MAX_REPEATS:
                record.msg = f"{record.msg}\n({count - _MAX_REPEATS} similar messages omitted)"
            started, count = now, 0
        if kind not in self._kinds and len(self._kinds) >= _MAX_KINDS:
            self._kinds.pop(next(iter(self._kinds)))
        self._kinds[kind] = (started, count + 1)
        return count < _MAX_REPEATS


def configure_logging(path: Path) -> None:
    """Log to the file at ``path``.

    The file is opened immediately, because there may be no free descriptors later.
    """
    path.touch(mode=0o600)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # malformed requests could fill the disk
    throttle = Throttle()
    for name in _THROTTLED:
        logging.getLogger(name).addFilter(throttle)
    if hasattr(faulthandler, "register"):  # on `kill -USR1`, a hanging server writes its stack traces
        faulthandler.register(signal.SIGUSR1, open(path, "a"), all_threads=True)
