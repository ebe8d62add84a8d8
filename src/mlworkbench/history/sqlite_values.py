"""Texts and checksums as the index stores them."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32


def sqlite_text(text: str) -> str:
    """Return text that SQLite can store.

    File names may contain invalid UTF-8, and untrusted text may contain NUL characters.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def checksum(values: Iterable[object]) -> int:
    return crc32("\x1f".join(str(value) for value in values).encode("utf-8"))
