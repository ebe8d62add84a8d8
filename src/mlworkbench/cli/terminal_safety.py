"""Make hostile text harmless for a terminal: the bytes of a log, and names and causes in one line.

Only colours pass. Everything else that a terminal would obey is shown instead of obeyed. What is stored is
never changed by this.
"""

from __future__ import annotations

import codecs
import os
import re

from ..report.plain import escape

# No colour sequence in use is longer; a longer one is shown like any other foreign sequence. It is also the
# most that is ever held back.
LONGEST = 64

_RESET = b"\x1b[0m"
_SGR = re.compile(rb"\x1b\[[0-9;:]{0,%d}m" % (LONGEST - 3))
_STRAY = re.compile(rb"\x1b(?!\[[0-9;:]{0,%d}m)" % (LONGEST - 3))
_PARTIAL = re.compile(rb"\x1b(?:\[[0-9;:]{0,%d})?" % (LONGEST - 3))
_PLAIN_AGAIN = re.compile(rb"\x1b\[[0;]*m")

# Progress bars are made of \r (tqdm) and \b (Keras), so both pass: they reach no further than their own line.
_HARMLESS = {0x08, 0x09, 0x0A, 0x0D, 0x1B, *range(0x20, 0x7F)}
_SUSPECT = bytes(sorted(set(range(256)) - _HARMLESS))

# After decoding: C0, DEL, C1, bidi overrides and isolates, line separators that only some programs know, and
# bytes that were no UTF-8 (as lone surrogates). ESC is not among them: only colours are left of it by then.
_HIDDEN = re.compile("[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\udc80-\udcff]")


_forbidden = False


def forbid_colours() -> None:
    """``--no-color``."""
    global _forbidden
    _forbidden = True


def colours() -> bool:
    """Whether the user lets us colour what goes to a terminal (https://no-color.org)."""
    return not _forbidden and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Screen:
    """Raw bytes of a log in, cut anywhere; out comes what may be written to a terminal.

    ``encoding`` is the terminal's, and must contain ASCII: in a Latin-1 terminal the bytes of harmless UTF-8
    are control characters.
    """

    def __init__(self, *, colour: bool | None = None, encoding: str = "utf-8") -> None:
        self._colour = colours() if colour is None else colour
        self._encoding = encoding
        self._held = b""
        self._coloured = False

    def feed(self, data: bytes) -> bytes:
        """The part of the stream that is decided; an unfinished character or colour waits for its rest."""
        if self._held:
            data = self._held + data
            self._held = b""
        if b"\x1b" not in data:
            return self._decode(data, final=False)
        start = _unfinished(data)
        self._held = data[start:]
        # A broken character before a held ESC stays broken, whatever follows.
        return self._paint(data[:start], final=start < len(data))

    def end(self) -> bytes:
        """The rest, and a reset if the stream leaves the terminal coloured."""
        rest, self._held = self._held, b""
        out = self._paint(rest, final=True)
        if self._coloured:
            out += _RESET
        self._coloured = False
        return out

    def _paint(self, data: bytes, *, final: bool) -> bytes:
        out = self._decode(_STRAY.sub(b"^[", data), final=final)
        if not self._colour:
            # Last of all: taking them out of the raw bytes could join the halves of a character.
            return _SGR.sub(b"", out)
        last = out.rfind(b"\x1b")
        if last >= 0:
            self._coloured = not _PLAIN_AGAIN.match(out, last)
        return out

    def _decode(self, data: bytes, *, final: bool) -> bytes:
        # Deleting nothing from plain ASCII runs at GB/s, a search by regular expression at a tenth of that.
        if len(data.translate(None, _SUSPECT)) == len(data):
            return data
        text, used = codecs.utf_8_decode(data, "surrogateescape", final)
        if used < len(data):
            self._held = data[used:]
        return _HIDDEN.sub(_reveal, text).encode(self._encoding, "backslashreplace")


def _unfinished(data: bytes) -> int:
    """Where a colour sequence begins that the end of the data cuts off; the end itself if there is none."""
    start = data.rfind(b"\x1b", max(0, len(data) - LONGEST + 1))
    return start if start >= 0 and _PARTIAL.fullmatch(data, start) else len(data)


# Bytes that are no UTF-8 are all alike, except those that would be 8-bit controls: these are named.
_SHOWN = {
    char: "\ufffd" if char >= "\udca0" else escape(char)
    for char in map(chr, (*range(0xA0), *range(0x2028, 0x206A), *range(0xDC80, 0xDD00)))
    if _HIDDEN.match(char)
}


def _reveal(found: re.Match[str]) -> str:
    return _SHOWN[found[0]]
