"""Local copy of a remote run's files: journal, metrics, logs, and samples.

Bytes are written at the offset that they have in the remote file. Therefore, concurrent followers, or a follower that
replaces a killed one, write the same bytes to the same place.
"""

from __future__ import annotations

import os

from ..errors import HistoryError, HostError
from ..remote.shared import metric_limits
from ..remote.shared.folder_tree import NOFOLLOW
from ..remote.shared.layout import RunFolder
from .disk_limit import require_room

LOG = "log"
MAX_SAMPLE_BYTES = 64 * 1024 * 1024
# Maximum bytes per file, above any valid run, to limit what a hostile target can send.
_MAX_BYTES = {
    "events.jsonl": 2**30,
    "build.log": 2**30,
    "gpu.jsonl": 2 * MAX_SAMPLE_BYTES,
    "effort.jsonl": 2 * MAX_SAMPLE_BYTES,
}
_MAX_OTHER_BYTES = 2**37
_FILE_NAMES = frozenset((*_MAX_BYTES, "log"))
_FLAGS = os.O_CREAT | NOFOLLOW | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class LocalCopy:
    """Local files of one remote run."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._metric_files = -1  # number of files; -1: not counted yet

    @staticmethod
    def accepts(name: str) -> bool:
        """Return whether files with this name are copied. The untrusted name may contain a path."""
        folder, _, rest = name.partition("/")
        return name in _FILE_NAMES or (folder == "metrics" and metric_limits.is_metric_file(rest))

    def exists(self) -> bool:
        """Return whether the local folder still exists. The user may have deleted it."""
        return os.path.isdir(self._run.path)

    def size(self, name: str = LOG) -> int:
        """Return the local size of a file."""
        try:
            return os.stat(os.path.join(self._run.path, name)).st_size
        except FileNotFoundError:
            return 0

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write bytes that start at ``offset`` in the target's file. Unknown names are ignored."""
        if not data or not self.accepts(name):
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
                    return  # the local file was truncated or deleted: do not leave a hole
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
        if size > _MAX_BYTES.get(name, _MAX_OTHER_BYTES):
            raise HostError(f"the target sent more than {size - 1:,} bytes of {name}, more than any run can have")
        if not name.startswith("metrics/") or os.path.exists(os.path.join(self._run.path, name)):
            return
        if self._metric_files < 0:
            self._metric_files = len(os.listdir(self._run.metrics)) if os.path.isdir(self._run.metrics) else 0
        self._metric_files += 1
        if self._metric_files > 2 * metric_limits.MAX_FILES:  # concurrent followers may receive different files
            raise HostError(
                f"the target sent more than {2 * metric_limits.MAX_FILES:,} metric files, more than any run can have"
            )

    def read_log(self, offset: int, limit: int) -> bytes:
        """Return bytes from the local log."""
        try:
            with open(self._run.log, "rb", buffering=0) as file:
                file.seek(offset)
                return file.read(limit) or b""
        except FileNotFoundError:
            return b""
