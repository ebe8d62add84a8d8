"""Append-only journals of MLflow's entities: one JSON array per line, for example ``["tag", "team", "vision"]``.

Several processes may append to a journal at the same time. Each write consists of complete lines and starts with a
newline, so that a partial line from a killed process never corrupts the next one. Readers skip empty and incomplete
lines. Applying a line twice must give the same state.
"""

import json
import os
import threading

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode
_BLOCK = 1024 * 1024  # bytes to read at a time


class _Lock(object):
    """One lock for all journals of a process. A forked child replaces it: another thread may have held it."""

    def __init__(self):
        self.renew()

    def renew(self):
        self.current = threading.RLock()


_lock = _Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lock.renew)


def locked():
    """Return the lock that protects reading a state and the write that depends on it."""
    return _lock.current


class Journal(object):
    """A journal file and the position up to which this process has read it. ``apply`` gets each new line."""

    def __init__(self, path, apply):
        self.path = path
        self._apply = apply
        self._position = 0

    def exists(self):
        return os.path.exists(self.path)

    def append(self, *lines):
        data = ("\n" + "\n".join(map(_encode, lines)) + "\n").encode("ascii")
        handle = os.open(self.path, _FLAGS, 0o600)
        try:
            written = os.write(handle, data)
            while written < len(data):  # the disk was nearly full; the next write raises the error
                written += os.write(handle, data[written:])
            end = os.lseek(handle, 0, os.SEEK_CUR)
        finally:
            os.close(handle)
        if end == self._position + len(data):  # no other process has written: no need to read the lines back
            for line in lines:
                self._apply(line)
            self._position = end

    def refresh(self):
        """Read what was written since the last call, also by other processes."""
        try:
            if os.stat(self.path).st_size <= self._position:
                return
        except OSError:
            return
        for line, position in _lines(self.path, self._position):
            self._apply(line)
            self._position = position

    def read_all(self, *begin):
        """Yield all lines, or those that begin with these values, without changing the position."""
        for line, _ in _lines(self.path, 0, _encode(begin)[:-1].encode("ascii")):
            if line[: len(begin)] == list(begin):
                yield line


def _lines(path, position, prefix=b"["):
    """Yield complete, valid lines with this prefix, and the position after each of them."""
    rest = b""
    with open(path, "rb") as file:
        file.seek(position)
        while True:
            block = file.read(_BLOCK)
            if not block:
                return
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            for line in lines:
                position += len(line) + 1
                if line.startswith(prefix):
                    content = _decode(line)
                    if content:
                        yield content, position


def _decode(line):
    try:
        content = json.loads(line.decode("ascii"))
    except ValueError:
        return None
    return content if isinstance(content, list) else None
