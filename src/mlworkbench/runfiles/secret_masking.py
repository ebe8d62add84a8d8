"""Hide the values of secrets in a stream of bytes, also where a value is cut between two reads.

Best effort, for display: the value, its lines, its base64 forms, and as JSON, repr and addresses escape it. A value
that the script encodes in another way, or prints in pieces, is not recognised; one of fewer than four bytes is left
alone, because hiding it would destroy the log.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

SHORTEST = 4
# The last line of wrapped base64 may be short and ordinary.
SHORTEST_BASE64_LINE = 8
# Where `base64` and MIME break the line.
BASE64_LINE = 76

_MASK = b"***"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Mask:
    """Each value becomes ``***``; values that overlap in the stream become one."""

    def __init__(self, values: Iterable[bytes]) -> None:
        found = {form for value in values for form in _forms(value)}
        # Shortest first, each with a shorter one inside it: where that one is not, the longer one cannot be.
        self._needles = sorted(found, key=lambda form: (len(form), form))
        self._inside = [_index_inside(self._needles, index) for index in range(len(self._needles))]
        self._reach = max(map(len, self._needles), default=1) - 1
        self._held = b""
        self._covered = 0  # so many of the held bytes lie under a mask that was already written

    def feed(self, data: bytes) -> bytes:
        """All that can no longer be part of a value which the next bytes complete."""
        if not self._needles:
            return data
        return self._pass(self._held + data if self._held else data, final=False)

    def end(self) -> bytes:
        """What was held back; the stream is over."""
        return self._pass(self._held, final=True)

    def _pass(self, data: bytes, *, final: bool) -> bytes:
        # Nothing that begins before `stop` reaches beyond the data: else `stop` would lie further ahead.
        stop = len(data) if final else self._beginning(data)
        self._held = data[stop:]
        spans = self._spans(data)
        if not spans and not self._covered:
            return data[:stop]
        return self._hide(data, spans, stop)

    def _hide(self, data: bytes, spans: list[tuple[int, int]], stop: int) -> bytes:
        out: list[bytes] = []
        end = self._covered
        for start, after in spans:
            if start >= stop:
                break
            if start >= end:
                out += (data[end:start], _MASK)
            end = max(end, after)
        out.append(data[end:stop])
        self._covered = max(0, end - stop)
        return b"".join(out)

    def _spans(self, data: bytes) -> list[tuple[int, int]]:
        """Every place of every value, in order; they may overlap."""
        spans = []
        present: list[bool] = []
        for needle, inside in zip(self._needles, self._inside, strict=True):
            at = data.find(needle) if inside is None or present[inside] else -1
            present.append(at >= 0)
            while at >= 0:
                spans.append((at, at + len(needle)))
                at = data.find(needle, at + 1)
        spans.sort()
        return spans

    def _beginning(self, data: bytes) -> int:
        """Where the longest end of the data begins that a value could begin with."""
        base = max(0, len(data) - self._reach)
        tail = data[base:]
        first = len(tail)
        for needle in self._needles:
            at = tail.find(needle[:1], max(0, len(tail) - len(needle) + 1), first)
            while at >= 0 and not needle.startswith(tail[at:]):
                at = tail.find(needle[:1], at + 1, first)
            if at >= 0:
                first = at
        return base + first


def _forms(value: bytes) -> Iterator[bytes]:
    """The ways a value is likely to be written."""
    stripped = value.strip()
    for line in {value, stripped, *(line.strip() for line in value.split(b"\n"))}:
        if len(line) >= SHORTEST:
            yield line
    for whole in {value, stripped}:
        if len(whole) >= SHORTEST:
            yield from _base64(whole)
            yield from _escaped(whole.decode("utf-8", "surrogateescape"))


def _escaped(value: str) -> Iterator[bytes]:
    """As JSON has it, Python's repr, and an address."""
    for form in (json.dumps(value), json.dumps(value, ensure_ascii=False), repr(value)):
        yield form[1:-1].encode("utf-8", "surrogateescape")
    for encode in (quote, quote_plus):
        yield encode(value, safe="", errors="surrogateescape").encode()


def _base64(value: bytes) -> Iterator[bytes]:
    standard = binascii.b2a_base64(value, newline=False)
    for form in (standard, standard.translate(_URL_SAFE)):
        yield form
        yield form.rstrip(b"=")
    for start in range(0, len(standard), BASE64_LINE):
        line = standard[start : start + BASE64_LINE]
        if len(line) >= SHORTEST_BASE64_LINE:
            yield line


def _index_inside(needles: list[bytes], index: int) -> int | None:
    return next((other for other in range(index) if needles[other] in needles[index]), None)
