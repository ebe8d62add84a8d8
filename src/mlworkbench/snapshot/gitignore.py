"""Parse and match ``.gitignore`` patterns as Git does (wildmatch.c and dir.c), on bytes.

The pathspec library is not used, because it matches whole paths as if no folder were ever pruned.
For ``data/**`` with ``!data/keep.csv``, it ignores the folder itself, and the file in it is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import NamedTuple


class Pattern(NamedTuple):
    """One line of an ignore file."""

    regex: re.Pattern[bytes]
    negated: bool
    folders_only: bool
    by_name: bool  # a pattern without a slash matches only the last path component


@cache
def read_patterns(text: bytes) -> tuple[Pattern, ...]:
    """Return the patterns of an ignore file in reverse order, because the last match wins."""
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    patterns = [_read_line(line.removesuffix(b"\r")) for line in lines]
    return tuple(pattern for pattern in reversed(patterns) if pattern is not None)


def find_match(patterns: tuple[Pattern, ...], path: bytes, is_folder: bool) -> bool | None:
    """Return True if ignored, False if included, and None without a match.

    ``path`` is relative to the folder of the ignore file.
    """
    name = path.rpartition(b"/")[2]
    for pattern in patterns:
        if pattern.folders_only and not is_folder:
            continue
        if pattern.regex.fullmatch(name if pattern.by_name else path):
            return not pattern.negated
    return None


def _read_line(line: bytes) -> Pattern | None:
    if line.startswith(b"#"):
        return None
    line = _trim(line)
    negated = line.startswith(b"!")
    line = line[1:] if negated else line
    folders_only = line.endswith(b"/")
    line = line[:-1] if folders_only else line
    by_name = b"/" not in line
    line = line.removeprefix(b"/")
    regex = _translate(line) if line else None
    return None if regex is None else Pattern(re.compile(regex, re.DOTALL), negated, folders_only, by_name)


def _trim(line: bytes) -> bytes:
    """Remove trailing spaces, except one escaped by a backslash."""
    kept = line.rstrip(b" ")
    escaped = (len(kept) - len(kept.rstrip(b"\\"))) % 2
    return line[: len(kept) + escaped]


def _translate(glob: bytes) -> bytes | None:
    """Return a regular expression; None if the pattern is malformed. Git ignores such patterns, too."""
    parts: list[bytes] = []
    at = 0
    wild = False
    while at < len(glob):
        char = glob[at : at + 1]
        if char == b"*":
            # Git matches the text before the first wildcard separately. Two stars after this text therefore count
            # as the start of a path component.
            part, at = _translate_stars(glob, at, opens=glob[at - 1 : at] == b"/" or not wild)
        elif char == b"?":
            part, at = b"[^/]", at + 1
        elif char == b"[":
            translated = _translate_class(glob, at)
            if translated is None:
                return None
            part, at = translated
        elif char == b"\\":
            if at + 1 == len(glob):
                return None
            part, at = re.escape(glob[at + 1 : at + 2]), at + 2
        else:
            part, at = re.escape(char), at + 1
        wild = wild or char in b"*?[\\"
        parts.append(part)
    return _join(parts)


def _join(parts: list[bytes]) -> bytes:
    """Return an expression that never takes exponential time, regardless of the number of stars.

    If a star is followed by another star of its kind, the first match of the part between them is as
    good as any later one, so no other is tried. Between stars that cross folders, the number of slashes
    is constant.
    """
    counter = count()
    *before, last = _split(parts, (_FOLDERS, _ANYTHING))
    joined = []
    for star, section in before:
        body = _join_section(section, counter, last=False)
        joined.append(_once(_SHORTEST[star] + body, counter) if star else body)
    return b"".join([*joined, last[0], _join_section(last[1], counter, last=True)])


def _join_section(parts: list[bytes], counter: Iterator[int], *, last: bool) -> bytes:
    chunks = [star + b"".join(chunk) for star, chunk in _split(parts, (_STAR,))]
    end = len(chunks) - 1 if last else len(chunks)  # the last part must reach the end of the path
    shortest = [_once(_SHORTEST[_STAR] + chunk[len(_STAR) :], counter) for chunk in chunks[1:end]]
    return b"".join([chunks[0], *shortest, *chunks[max(end, 1) :]])


def _split(parts: list[bytes], stars: tuple[bytes, ...]) -> list[tuple[bytes, list[bytes]]]:
    """Return each star with the parts after it. The first item has the parts before any star."""
    sections: list[tuple[bytes, list[bytes]]] = [(b"", [])]
    for part in parts:
        if part in stars:
            sections.append((part, []))
        else:
            sections[-1][1].append(part)
    return sections


def _once(regex: bytes, counter: Iterator[int]) -> bytes:
    """Return an atomic group as a lookahead; Python supports atomic groups only since version 3.11."""
    name = b"g%d" % next(counter)
    return b"(?=(?P<%s>%s))(?P=%s)" % (name, regex, name)


def _translate_stars(glob: bytes, at: int, *, opens: bool) -> tuple[bytes, int]:
    end = at
    while glob[end : end + 1] == b"*":
        end += 1
    rest = glob[end : end + 2]
    closes = not rest or rest[:1] == b"/" or rest == b"\\/"
    if end - at == 1 or not (opens and closes):
        return _STAR, end
    if rest[:1] == b"/":
        return _FOLDERS, end + 1
    return _ANYTHING, end


_STAR, _FOLDERS, _ANYTHING = b"[^/]*", b"(?:.*/)?", b".*"
_SHORTEST = {_STAR: b"[^/]*?", _FOLDERS: b"(?:[^/]*/)*?", _ANYTHING: b".*?"}
_CLASSES = {
    b"alnum": rb"a-zA-Z0-9",
    b"alpha": rb"a-zA-Z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"\x21-\x7e",
    b"lower": rb"a-z",
    b"print": rb"\x20-\x7e",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb" \t\n\r\x0b\x0c",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9a-fA-F",
}


def _translate_class(glob: bytes, start: int) -> tuple[bytes, int] | None:
    """Parse ``[...]`` from its opening bracket; None if it is unclosed or names an unknown class."""
    at = start + 1
    negated = glob[at : at + 1] in (b"!", b"^")
    at += negated
    items: list[bytes] = []
    first = True
    while first or glob[at : at + 1] != b"]":
        first = False
        close = glob.find(b"]", at + 2) if glob[at : at + 2] == b"[:" else 0
        if close > at + 2 and glob[close - 1 : close] == b":":
            items.append(_CLASSES.get(glob[at + 2 : close - 1], b""))
            at = close + 1
        else:
            low, high, at = _read_range(glob, at)
            # A reversed range still contains its start.
            items.append(re.escape(low) + (b"-" + re.escape(high) if low < high else b""))
        if close < 0 or not items[-1]:
            return None
    members = b"".join(items)
    return (b"[^/" if negated else b"(?!/)[") + members + b"]", at + 1


def _read_range(glob: bytes, at: int) -> tuple[bytes, bytes, int]:
    """Return the first and last characters and the next position. The first is empty at the end of the pattern."""
    low, at = _read_member(glob, at)
    if glob[at : at + 1] == b"-" and glob[at + 1 : at + 2] not in (b"", b"]"):
        high, at = _read_member(glob, at + 1)
        return low if high else b"", high, at
    return low, low, at


def _read_member(glob: bytes, at: int) -> tuple[bytes, int]:
    at += glob[at : at + 1] == b"\\"
    return glob[at : at + 1], at + 1
