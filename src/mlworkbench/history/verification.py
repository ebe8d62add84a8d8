"""That every row of the index was looked at, and that the file has not changed since: so that it need not be again."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from zlib import crc32

_SETTLED = 2.0  # seconds; a file that changed later than that could change again without its times telling
_LONGEST = 400

Look = tuple[int, ...]


class Checked:
    """A file beside the index that says how index and WAL looked when all was found sound."""

    def __init__(self, database: Path) -> None:
        self._files = (str(database), f"{database}-wal")
        self._path = f"{database}.checked"

    def look(self) -> Look | None:
        """How the files look now. None where that would not tell a change."""
        facts = self.facts()
        newest = max((max(one[3:]) for one in facts if one), default=0)
        # A clock that was set back makes it seem young for ever: then everything is checked every time.
        return sum(facts, ()) if time.time() - newest / 1e9 > _SETTLED else None

    def facts(self) -> tuple[Look, ...]:
        """How the files look now, however young they are."""
        return tuple(_facts(path) for path in self._files)

    def holds(self, look: Look | None) -> bool:
        """Whether all was found sound when the files looked so."""
        if look is None:
            return False
        try:
            with open(self._path, "rb") as file:
                return file.read(_LONGEST) == _line(look)
        except OSError:
            return False

    def note(self, look: Look | None) -> None:
        """All is sound. Nothing is lost if this is: then the next one checks again."""
        if look is None:
            return
        part = f"{self._path}.{os.getpid()}.part"
        with suppress(OSError):
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
            try:
                os.write(descriptor, _line(look))
            finally:
                os.close(descriptor)
            os.replace(part, self._path)


def _facts(path: str) -> Look:
    """Nothing for a file that is not there or empty: opening an index makes an empty WAL."""
    try:
        facts = os.stat(path)
    except OSError:
        return ()
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns) if facts.st_size else ()


def _line(look: Look) -> bytes:
    text = " ".join(str(number) for number in look).encode()
    return b"%s %08x\n" % (text, crc32(text))
