"""Mask secret values in a byte stream, even if a value is split between two reads.

Masking is best effort and meant for display. It recognizes the value, its lines, its base64 forms,
and its escaped forms in JSON, repr, and URLs. A value that is encoded differently or printed in
pieces is not recognized. Values shorter than four bytes are not masked, because that would garble
the log.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

MIN_LENGTH = 4
# The last line of wrapped base64 may be short and common.
MIN_BASE64_LINE = 8
# Line length of ``base64`` and MIME.
BASE64_LINE = 76

_MASK = b"***"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Mask:
    """Filter that replaces each value with ``***``; overlapping values are merged."""

    def __init__(self, values: Iterable[bytes]) -> None:
        forms = {form for value in values for form in _forms(value)}
        # Shortest first. A value can only occur where the shorter value in ``_contained`` occurs.
        self._needles = sorted(forms, key=lambda form: (len(form), form))
        self._contained = [_index_inside(self._needles, index) for index in range(len(self._needles))]
        self._overlap = max(map(len, self._needles), default=1) - 1
        self._held = b""
        self._covered = 0  # number of held bytes covered by a written mask

    def feed(self, data: bytes) -> bytes:
        """Add data and return masked output. The end of the data is held back if it may be the start of a value."""
        if not self._needles:
            return data
        return self._process(self._held + data if self._held else data, final=False)

    def end(self) -> bytes:
        """Return the remaining bytes at the end of the stream."""
        return self._process(self._held, final=True)

    def _process(self, data: bytes, *, final: bool) -> bytes:
        # No value that starts before ``stop`` extends beyond the data; otherwise ``stop`` would be earlier.
        stop = len(data) if final else self._partial_start(data)
        self._held = data[stop:]
        spans = self._find_spans(data)
        if not spans and not self._covered:
            return data[:stop]
        return self._replace(data, spans, stop)

    def _replace(self, data: bytes, spans: list[tuple[int, int]], stop: int) -> bytes:
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

    def _find_spans(self, data: bytes) -> list[tuple[int, int]]:
        """Return the spans of all values, sorted; they may overlap."""
        spans = []
        present: list[bool] = []
        for needle, inside in zip(self._needles, self._contained, strict=True):
            at = data.find(needle) if inside is None or present[inside] else -1
            present.append(at >= 0)
            while at >= 0:
                spans.append((at, at + len(needle)))
                at = data.find(needle, at + 1)
        spans.sort()
        return spans

    def _partial_start(self, data: bytes) -> int:
        """Return the start of the longest data suffix that is a prefix of a value."""
        base = max(0, len(data) - self._overlap)
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
    """Yield the likely representations of a value."""
    stripped = value.strip()
    for line in {value, stripped, *(line.strip() for line in value.split(b"\n"))}:
        if len(line) >= MIN_LENGTH:
            yield line
    for whole in {value, stripped}:
        if len(whole) >= MIN_LENGTH:
            yield from _base64_forms(whole)
            yield from _escaped_forms(whole.decode("utf-8", "surrogateescape"))


def _escaped_forms(value: str) -> Iterator[bytes]:
    """Yield the value as escaped in JSON, Python's repr, and URLs."""
    for form in (json.dumps(value), json.dumps(value, ensure_ascii=False), repr(value)):
        yield form[1:-1].encode("utf-8", "surrogateescape")
    for encode in (quote, quote_plus):
        yield encode(value, safe="", errors="surrogateescape").encode()


def _base64_forms(value: bytes) -> Iterator[bytes]:
    standard = binascii.b2a_base64(value, newline=False)
    for form in (standard, standard.translate(_URL_SAFE)):
        yield form
        yield form.rstrip(b"=")
    for start in range(0, len(standard), BASE64_LINE):
        line = standard[start : start + BASE64_LINE]
        if len(line) >= MIN_BASE64_LINE:
            yield line


def _index_inside(needles: list[bytes], index: int) -> int | None:
    return next((other for other in range(index) if needles[other] in needles[index]), None)
