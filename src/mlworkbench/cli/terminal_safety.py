"""Filter log output for terminals.

Only color sequences pass through. All other control sequences are shown as text. Stored data is
never changed.
"""

from __future__ import annotations

import codecs
import os
import re

from ..sanitize import escape

# Maximum length of a color sequence. Longer ones are shown as text, like other control sequences. The
# filter never holds back more bytes than this.
MAX_SEQUENCE = 64

_RESET = b"\x1b[0m"
_SGR = re.compile(rb"\x1b\[[0-9;:]{0,%d}m" % (MAX_SEQUENCE - 3))
_OTHER_ESCAPE = re.compile(rb"\x1b(?!\[[0-9;:]{0,%d}m)" % (MAX_SEQUENCE - 3))
_INCOMPLETE_SGR = re.compile(rb"\x1b(?:\[[0-9;:]{0,%d})?" % (MAX_SEQUENCE - 3))
_SGR_RESET = re.compile(rb"\x1b\[[0;]*m")

# Progress bars use \r (tqdm) and \b (Keras). Both are allowed, because they only affect their own line.
_SAFE_BYTES = {0x08, 0x09, 0x0A, 0x0D, 0x1B, *range(0x20, 0x7F)}
_UNSAFE_BYTES = bytes(sorted(set(range(256)) - _SAFE_BYTES))

# After decoding: C0, DEL, C1, bidi overrides and isolates, line separators that not all programs support, and
# invalid UTF-8 (as lone surrogates). ESC is not included: only color sequences still contain it.
_UNSAFE_CHARACTERS = re.compile("[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\udc80-\udcff]")


_colors_disabled = False


def disable_colors() -> None:
    """Disable colors, as requested by ``--no-color``."""
    global _colors_disabled
    _colors_disabled = True


def colors_enabled() -> bool:
    """Return whether output to a terminal may be colored (https://no-color.org)."""
    return not _colors_disabled and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class TerminalFilter:
    """Filter that makes raw log bytes safe for a terminal. The bytes may be split at any position.

    ``encoding`` is the terminal's encoding and must be a superset of ASCII. On a Latin-1 terminal, the
    UTF-8 bytes of harmless text can be control characters.
    """

    def __init__(self, *, color: bool | None = None, encoding: str = "utf-8") -> None:
        self._color = colors_enabled() if color is None else color
        self._encoding = encoding
        self._held = b""
        self._is_colored = False

    def feed(self, data: bytes) -> bytes:
        """Return the filtered data. An incomplete character or color sequence is held back."""
        if self._held:
            data = self._held + data
            self._held = b""
        if b"\x1b" not in data:
            return self._decode(data, final=False)
        start = _incomplete_start(data)
        self._held = data[start:]
        # An incomplete character before a held ESC cannot be completed.
        return self._paint(data[:start], final=start < len(data))

    def end(self) -> bytes:
        """Return the remaining output, with a reset if the terminal would otherwise stay colored."""
        remaining, self._held = self._held, b""
        out = self._paint(remaining, final=True)
        if self._is_colored:
            out += _RESET
        self._is_colored = False
        return out

    def _paint(self, data: bytes, *, final: bool) -> bytes:
        out = self._decode(_OTHER_ESCAPE.sub(b"^[", data), final=final)
        if not self._color:
            # Sequences are removed after decoding, because removing raw bytes could join the halves of a character.
            return _SGR.sub(b"", out)
        last = out.rfind(b"\x1b")
        if last >= 0:
            self._is_colored = not _SGR_RESET.match(out, last)
        return out

    def _decode(self, data: bytes, *, final: bool) -> bytes:
        # Comparing lengths is ten times as fast on plain ASCII as a regular expression.
        if len(data.translate(None, _UNSAFE_BYTES)) == len(data):
            return data
        text, used = codecs.utf_8_decode(data, "surrogateescape", final)
        if used < len(data):
            self._held = data[used:]
        return _UNSAFE_CHARACTERS.sub(_replace_unsafe, text).encode(self._encoding, "backslashreplace")


def _incomplete_start(data: bytes) -> int:
    """Return the start of a color sequence truncated at the end of ``data``, or ``len(data)``."""
    start = data.rfind(b"\x1b", max(0, len(data) - MAX_SEQUENCE + 1))
    return start if start >= 0 and _INCOMPLETE_SGR.fullmatch(data, start) else len(data)


# Invalid bytes become U+FFFD, except 8-bit controls, which are escaped.
_REPLACEMENTS = {
    char: "\ufffd" if char >= "\udca0" else escape(char)
    for char in map(chr, (*range(0xA0), *range(0x2028, 0x206A), *range(0xDC80, 0xDD00)))
    if _UNSAFE_CHARACTERS.match(char)
}


def _replace_unsafe(match: re.Match[str]) -> str:
    return _REPLACEMENTS[match[0]]
