from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.cli.terminal_safety import MAX_SEQUENCE, TerminalFilter
from mlworkbench.sanitize import plain

SGR = re.compile(rb"\x1b\[[0-9;:]*m")

# name, content of the log, output on a terminal with colors
PAYLOADS = [
    ("text", b"epoch 1\tloss 0.5\n", b"epoch 1\tloss 0.5\n"),
    ("color", b"\x1b[1;32mok\x1b[0m\n", b"\x1b[1;32mok\x1b[0m\n"),
    ("true color", b"\x1b[38:2::1:2:3mx\x1b[m", b"\x1b[38:2::1:2:3mx\x1b[m"),
    ("progress bar", b"\r 10%|#  |\r 20%|## |\r\n", b"\r 10%|#  |\r 20%|## |\r\n"),
    ("keras bar", b"1/5 [=>]\b\b\b\b\b2/5 [=>]", b"1/5 [=>]\b\b\b\b\b2/5 [=>]"),
    ("blocks", "█▌ 50% é 漢字 🎉\n".encode(), "█▌ 50% é 漢字 🎉\n".encode()),
    ("title", b"\x1b]0;pwned\x07", rb"^[]0;pwned\x07"),
    ("title with ST", b"\x1b]2;pwned\x1b\\", rb"^[]2;pwned^[" + b"\\"),
    ("clipboard", b"\x1b]52;c;cm0gLXJm\x07", rb"^[]52;c;cm0gLXJm\x07"),
    ("cursor up, erase", b"\x1b[2A\x1b[2K\x1b[H", b"^[[2A^[[2K^[[H"),
    ("private mode", b"\x1b[?1049h", b"^[[?1049h"),
    ("private m", b"\x1b[>4;1m\x1b[?4m", b"^[[>4;1m^[[?4m"),
    ("spaced m", b"\x1b[1 m", b"^[[1 m"),
    ("device attributes", b"\x1b[c\x1b[6n", b"^[[c^[[6n"),
    ("DCS", b"\x1bP$q\x1b\\", b"^[P$q^[\\"),
    ("APC, PM, SOS", b"\x1b_a\x1b^b\x1bXc", b"^[_a^[^b^[Xc"),
    ("full reset", b"\x1bc", b"^[c"),
    ("character set", b"\x1b(0\x0e", rb"^[(0\x0e"),
    ("8-bit CSI, raw", b"\x9b2J", rb"\x9b2J"),
    ("8-bit OSC, raw", b"\x9d0;t\x9c", rb"\x9d0;t\x9c"),
    ("8-bit CSI in UTF-8", "\x9b2J".encode(), rb"\x9b2J"),
    ("8-bit OSC in UTF-8", "\x9d52;c;eA==\x9c".encode(), rb"\x9d52;c;eA==\x9c"),
    ("color inside a title", b"\x1b]0;a\x1b[31mb\x07\x1b[0m", b"^[]0;a\x1b[31mb\\x07\x1b[0m"),
    ("sequence in a sequence", b"\x1b[\x1b[2J", b"^[[^[[2J"),
    ("doubled ESC", b"\x1b\x1b[0m", b"^[\x1b[0m"),
    ("ESC before a character", b"\x1b[3\xc3\xa9", b"^[[3\xc3\xa9"),
    ("newline inside a sequence", b"\x1b[3\n1m", b"^[[3\n1m"),
    ("too long", b"\x1b[" + b"1" * MAX_SEQUENCE + b"m", b"^[[" + b"1" * MAX_SEQUENCE + b"m"),
    ("longest", b"\x1b[" + b"0" * (MAX_SEQUENCE - 3) + b"m", b"\x1b[" + b"0" * (MAX_SEQUENCE - 3) + b"m"),
    ("C0 and DEL", b"\x00\x01\x05\x07\x0b\x0c\x0f\x7f", rb"\x00\x01\x05\x07\x0b\x0c\x0f\x7f"),
    ("bidi", "a\u202eb\u2066c\u2069".encode(), rb"a\u202eb\u2066c\u2069"),
    ("line separators", "a\u2028b\u2029".encode(), rb"a\u2028b\u2029"),
    ("bad UTF-8", b"\xff\xfe caf\xe9!", "\ufffd\ufffd caf\ufffd!".encode()),
    ("overlong ESC", b"\xc0\x9b[2J", "\ufffd\\x9b[2J".encode()),
    ("encoded surrogate", b"\xed\xa0\x80", "\ufffd\ufffd\\x80".encode()),
    ("broken before ESC", b"\xe2\x82\x1b[2J", "\ufffd\\x82^[[2J".encode()),
    ("broken around a color", b"\xe2\x1b[0m\x82\xac", "\ufffd\x1b[0m\\x82\ufffd".encode()),
    ("unfinished character", b"a\xe2\x82", "a\ufffd\\x82".encode()),
    ("unfinished color", b"a\x1b[31", b"a^[[31"),
    ("lone ESC at the end", b"a\x1b", b"a^["),
]
CASES = pytest.mark.parametrize(("data", "shown"), [pytest.param(*row[1:], id=row[0]) for row in PAYLOADS])


def filtered(*chunks: bytes, color: bool = True) -> bytes:
    terminal_filter = TerminalFilter(color=color)
    out = b"".join(terminal_filter.feed(chunk) for chunk in chunks)
    return out + terminal_filter.end()


def assert_safe(out: bytes) -> None:
    text = SGR.sub(b"", out).decode()  # raises an error if the output is not UTF-8
    assert not re.search("[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", text)


@CASES
def test_control_sequences_are_shown_as_text(data: bytes, shown: bytes) -> None:
    assert filtered(data) == shown
    assert_safe(shown)


@CASES
def test_the_result_does_not_depend_on_chunks(data: bytes, shown: bytes) -> None:
    assert filtered(*(data[i : i + 1] for i in range(len(data)))) == shown
    for first in range(len(data) + 1):
        assert filtered(data[:first], data[first:]) == shown
        if len(data) < 30:
            for second in range(first, len(data) + 1):
                assert filtered(data[:first], data[first:second], data[second:]) == shown


@CASES
def test_without_colors_no_escape_remains(data: bytes, shown: bytes) -> None:
    assert filtered(data, color=False) == SGR.sub(b"", shown)
    for first in range(len(data) + 1):
        assert filtered(data[:first], data[first:], color=False) == SGR.sub(b"", shown)


# Byte sequences that are likely to form control sequences together.
HOSTILE = st.lists(
    st.sampled_from([b"\x1b", b"[", b"]", b"0", b";", b"m", b"\x9b", b"\xc2", b"\xe2\x80", b"\xae", b"a"])
    | st.sampled_from([row[1] for row in PAYLOADS])
    | st.binary(max_size=8)
    | st.text(max_size=4).map(str.encode)
).map(b"".join)


@given(HOSTILE, st.lists(st.integers(0, 400)), st.booleans())
def test_any_bytes_in_any_chunks(data: bytes, cuts: list[int], color: bool) -> None:
    positions = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    terminal_filter = TerminalFilter(color=color)
    out = b""
    for start, stop in zip(positions, positions[1:], strict=False):
        piece = terminal_filter.feed(data[start:stop])
        assert_safe(piece)  # each piece alone: the terminal receives it before the next
        out += piece
        assert len(terminal_filter._held) < MAX_SEQUENCE
    out += terminal_filter.end()
    assert_safe(out)
    assert out == filtered(data, color=color)
    assert color or b"\x1b" not in out


@given(HOSTILE)
def test_filtering_is_idempotent(data: bytes) -> None:
    once = filtered(data)
    assert filtered(once) == once


@pytest.mark.parametrize(
    ("data", "reset"),
    [
        (b"plain", False),
        (b"\x1b[31mred", True),
        (b"\x1b[31mred\x1b[0m", False),
        (b"\x1b[31mred\x1b[m", False),
        (b"\x1b[0;31mred", True),
        (b"\x1b[31mred\x1b[0m\x1b[1mbold", True),
        (b"\x1b[31mred\x1b[0m\x1b[2J", False),
    ],
)
def test_colors_are_reset_at_the_end(data: bytes, reset: bool) -> None:
    assert filtered(data).endswith(b"\x1b[0m") == (reset or data.endswith(b"\x1b[0m"))
    for cut in range(len(data)):
        assert filtered(data[:cut], data[cut:]) == filtered(data)


def test_ordinary_output_is_not_delayed() -> None:
    terminal_filter = TerminalFilter(color=True)
    assert terminal_filter.feed(b"no newline yet") == b"no newline yet"
    assert terminal_filter.feed("é".encode()[:1]) == b""
    assert terminal_filter.feed("é".encode()[1:]) == "é".encode()


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert TerminalFilter().feed(b"\x1b[31mred") == b"red"
    monkeypatch.setenv("NO_COLOR", "")
    assert TerminalFilter().feed(b"\x1b[31mred") == b"\x1b[31mred"
    monkeypatch.setenv("TERM", "dumb")
    assert TerminalFilter().feed(b"\x1b[31mred") == b"red"


def test_other_encodings_get_no_utf8_bytes() -> None:
    terminal_filter = TerminalFilter(color=True, encoding="latin-1")
    assert terminal_filter.feed("é Û █\n".encode()) == b"\xe9 \xdb \\u2588\n"


def test_speed_and_constant_memory_of_one_endless_line() -> None:
    chunk = b"x" * (1 << 20)
    terminal_filter = TerminalFilter(color=True)
    start = time.process_time()
    for _ in range(200):
        assert terminal_filter.feed(chunk) is chunk  # returned without a copy
    assert time.process_time() - start < 4  # 50 MB/s: well below the actual speed, well above a slow path
    assert terminal_filter._held == b""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.py", "train.py"),
        ("a b é 漢 🎉", "a b é 漢 🎉"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x1b]0;t\x07", "^[]0;t\\x07"),
        ("\x9b2J\x7f\x00", "\\x9b2J\\x7f\\x00"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2028\u200b\ufeff", "\\u2028\\u200b\\ufeff"),
        ("caf\udce9", "caf\\xe9"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("C:\\new\\table", "C:\\new\\table"),
        ("", ""),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text(st.characters()), st.none() | st.integers(1, 30))
def test_plain_is_always_one_safe_line(text: str, limit: int | None) -> None:
    shown = plain(text, limit)
    assert_safe(shown.encode())
    assert "\n" not in shown and "\r" not in shown and "\t" not in shown and "\x1b" not in shown
    assert limit is None or len(shown) <= limit
    assert len(shown.splitlines()) <= 1


def test_plain_marks_truncated_text() -> None:
    assert plain("abcdef", 6) == "abcdef"
    assert plain("abcdefg", 6) == "abcde…"
    assert plain("x" * 10**7, 5) == "xxxx…"
