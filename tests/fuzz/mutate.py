"""Mutations of valid samples: JSON trees, lines of text, and bytes, with a dictionary of unusual values."""

# ruff: noqa: E501 - tables are easier to read with long lines

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

# as_json replaces these placeholders with JSON that no Python object serializes to.
HUGE, DEEP, TWICE = "@@huge@@", "@@deep@@", "@@twice@@"
_RAW = {
    HUGE: "9" * 5000,  # more digits than Python converts to an integer
    DEEP: "[" * 3000 + "]" * 3000,
    TWICE: '{"ok": true, "ok": [], "a": 1, "a": {"a": 2}}',
}
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64, 10**30, 10**300, 10**4000,
    0.5, -0.0, 1e308, -1e308, 1e-320, 1e11, float("nan"), float("inf"), float("-inf"), HUGE, DEEP, TWICE,
    "", " ", "\0", "a\0b", "\n", "\r\n", "\ud800", "\udcff", "é" * 130, "a" * 300, "b" * 70_000, "\U0001f600", "\u202e",
    "../../../etc/passwd", "/etc/passwd", "/dev/zero", "~", "$HOME", "${HOME}", "%s%n", "\x1b]0;x\x07", "\x1b[2J",
    "NaN", "Infinity", "1e999", "9" * 5000, "-1", "0x10", "true", "null", "1:30", "2026-02-30", "<b>", "'; DROP TABLE",
    [], [[]], [None], [1, "a", {}], {}, {"": ""}, {"a": {"b": [1]}}, {"f": "NaN"}, {"f": []},
]  # fmt: skip
_deep: Any = "x"
for _ in range(60):
    _deep = [_deep]
VALUES.append(_deep)
TOKENS: list[bytes] = [
    b"", b"\0", b"\n", b"\r", b"\t", b" ", b":", b": ", b"- ", b"#", b"|\n", b">-\n", b"&a ", b"*a", b"!!python/object:os.x ",
    b"<<: *a\n", b"? ", b"%YAML 9.9\n", b"---\n", b"...\n", b"[", b"]", b"{", b"}", b'"', b"'", b"\\", b'"\\ud800"',
    b"\\x00", b"\xff", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x85", b"\x1b[31m",
    b"=", b"==", b"===", b">=", b"~=", b"!=", b"@", b";", b",", b"[a]", b"::", b"/", b"\\", b"..", b"file:///", b"git+https://",
    b"-r ", b"-c ", b"-e ", b"--hash=sha256:", b"--find-links ", b"-i http://[", b"http://[::1", b"https://a:b@c/", b"${X}", b"$",
    b"9" * 20, b"9" * 5000, b"1e999", b"-1", b"0x10", b"1.2.3", b"null", b"~", b"true", b"NaN", b"a" * 300, b"x" * 5000,
    b"[" * 200, b"[" * 3000, b"{" * 200, b"a: " * 60, b"(" * 500, b"*" * 100, b"**/" * 40, b"[!" * 30, b"\xc3\xa9" * 150,
]  # fmt: skip


def mutate_tree(tree: Any, random: Random) -> Any:
    """Return a copy of a JSON value with some nodes replaced."""
    tree = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        tree = _mutate_node(tree, random)
    return tree


def _mutate_node(tree: Any, random: Random) -> Any:
    places = list(_places(tree))
    if not places or random.random() < 0.02:
        return random.choice(VALUES)
    holder, key = random.choice(places)
    way = random.random()
    if way < 0.55:
        holder[key] = copy.deepcopy(random.choice(VALUES))
    elif way < 0.65:
        del holder[key]
    elif way < 0.72:
        holder[key] = [holder[key]]
    elif way < 0.79:
        holder[key] = {"a": holder[key]}
    elif way < 0.87:
        other, name = random.choice(places)
        holder[key] = copy.deepcopy(other[name])
    elif isinstance(holder, dict):
        odd = random.choice([value for value in VALUES if isinstance(value, str)])
        holder[odd] = copy.deepcopy(random.choice(VALUES)) if random.random() < 0.5 else holder[key]
    else:
        holder.insert(key, copy.deepcopy(random.choice(VALUES)))
    return tree


def _places(tree: Any) -> Any:
    """Yield every (container, key) in a tree."""
    pending = [tree]
    while pending:
        holder = pending.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            if isinstance(holder[key], (dict, list)) and len(pending) < 500:
                pending.append(holder[key])


def as_json(tree: Any) -> bytes:
    """Serialize a tree, and replace its placeholders with the raw JSON."""
    text = json.dumps(tree)
    for placeholder, raw in _RAW.items():
        text = text.replace(f'"{placeholder}"', raw)
    return text.encode()


def mutate_bytes(data: bytes, random: Random, others: list[bytes]) -> bytes:
    """Flip, cut, and repeat bytes; insert tokens and pieces of other samples."""
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        at, end = sorted((random.randint(0, len(data)), random.randint(0, len(data))))
        end = min(end, at + random.choice((1, 2, 8, 64, 100_000)))
        way = random.randrange(8)
        if way == 0 and data:
            at = min(at, len(data) - 1)
            data = data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]
        elif way == 1:
            data = data[:at] + data[end:]
        elif way == 2:
            data = data[:at] + data[at:end] * random.choice((2, 3, 50)) + data[end:]
        elif way == 3:
            other = random.choice(others)
            begin = random.randint(0, len(other))
            data = data[:at] + other[begin : begin + random.choice((4, 40, 400))] + data[end:]
        elif way == 4:
            data = data[:at]
        elif way == 5:
            data = data[:at] + random.randbytes(random.choice((1, 4, 16))) + data[end:]
        else:
            data = data[:at] + random.choice(TOKENS) + data[at if way == 6 else end :]
        data = data[:200_000]
    return data


def mutate_lines(data: bytes, random: Random, others: list[bytes]) -> bytes:
    """Repeat, drop, insert, or indent lines, or put a token at their start or after a separator."""
    lines = data.split(b"\n")
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(lines))
        way = random.randrange(8)
        if way == 0:
            lines.insert(at, lines[random.randrange(len(lines))])
        elif way == 1 and len(lines) > 1:
            del lines[at]
        elif way == 2:
            lines[at] = random.choice((b" ", b"  ", b"\t", b"- ")) + lines[at]
        elif way == 3:
            lines.insert(at, random.choice(random.choice(others).split(b"\n")))
        elif way == 4:
            lines[at] = random.choice(TOKENS) + lines[at]
        else:
            mark = random.choice((b":", b"=", b" ", b"-", b"/", b'"'))
            head, sep, _ = lines[at].partition(mark)
            lines[at] = head + sep + random.choice((b"", b" ")) + random.choice(TOKENS)
    return b"\n".join(lines)[:200_000]
