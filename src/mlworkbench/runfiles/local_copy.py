"""The copy at home of a run that lives on another machine: journal, metrics and log, byte for byte.

Written at the offsets that the bytes were read from, so that two followers at once, or one that was killed,
write the same bytes to the same place.
"""

from __future__ import annotations

import os

from ..errors import HistoryError, HostError
from ..remote.shared import metric_files
from ..remote.shared.layout import RunFolder
from ..remote.shared.tree import NOFOLLOW
from .room import require_room

LOG = "log"
MOST_SAMPLES = 64 * 1024 * 1024
# Bytes of one file. More than any honest run has: what a hostile target sends must end somewhere.
_MOST = {"events.jsonl": 2**30, "build.log": 2**30, "gpu.jsonl": 2 * MOST_SAMPLES, "effort.jsonl": 2 * MOST_SAMPLES}
_MOST_OF_OTHERS = 2**37
_OURS = frozenset((*_MOST, "log"))
_FLAGS = os.O_CREAT | NOFOLLOW | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class Mirror:
    """Of one run."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._metrics = -1  # files; -1: not counted yet

    @staticmethod
    def keeps(name: str) -> bool:
        """Whether this is the name of a file that comes home. It comes from the target: it could lead elsewhere."""
        folder, _, rest = name.partition("/")
        return name in _OURS or (folder == "metrics" and metric_files.is_name(rest))

    def exists(self) -> bool:
        """Whether the folder at home is there; somebody may have deleted it."""
        return os.path.isdir(self._run.path)

    def size(self, name: str = LOG) -> int:
        """How much of a file is at home."""
        try:
            return os.stat(os.path.join(self._run.path, name)).st_size
        except FileNotFoundError:
            return 0

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Put the bytes that the target has at ``offset``. A name that is none of ours is passed over."""
        if not data or not self.keeps(name):
            return
        self._check(name, offset + len(data))
        require_room(self._run.path, len(data), f"the next part of {name}")
        path = os.path.join(self._run.path, *name.split("/"))
        try:
            if "/" in name:
                os.makedirs(self._run.metrics, mode=0o700, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | _FLAGS, 0o600)
            with open(descriptor, "wb", buffering=0) as file:
                if os.fstat(descriptor).st_size < offset:
                    return  # what comes before has been deleted here: a file with a hole would lie
                file.seek(offset)
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) or 0 :]
        except OSError as error:
            raise HistoryError(
                f"cannot write {path}: {error.strerror}",
                "the run continues; free disk space and follow it again with 'mlw logs -f'",
            ) from error

    def _check(self, name: str, size: int) -> None:
        if size > _MOST.get(name, _MOST_OF_OTHERS):
            raise HostError(f"the target sent more than {size - 1:,} bytes of {name}, more than any run can have")
        if not name.startswith("metrics/") or os.path.exists(os.path.join(self._run.path, name)):
            return
        if self._metrics < 0:
            self._metrics = len(os.listdir(self._run.metrics)) if os.path.isdir(self._run.metrics) else 0
        self._metrics += 1
        if self._metrics > 2 * metric_files.MOST_FILES:  # two followers may have been sent different ones
            raise HostError(
                f"the target sent more than {2 * metric_files.MOST_FILES:,} metric files, more than any run can have"
            )

    def read_log(self, offset: int, limit: int) -> bytes:
        """Bytes of the log that are at home."""
        try:
            with open(self._run.log, "rb", buffering=0) as file:
                file.seek(offset)
                return file.read(limit) or b""
        except FileNotFoundError:
            return b""
