"""Change keys in an aml_config file without changing any other byte.

The new value replaces the old one in the text. A YAML library would rewrite the whole file, lose
comments after a removed key or a replaced list, and change numbers such as 0.10.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping as Changes
from pathlib import Path

from ..errors import ConfigError
from .keys import normalize_key
from .project_files import is_outside
from .yaml_tree import Mapping, Node, Scalar, decode, parse, to_python

# Strings that need no quotes in YAML, and strings that YAML would read as a boolean, null, or a number.
_BARE = re.compile(r"[A-Za-z_./$~][\w./@+=$~-]*(:[\w./@+=$~-]+)*\Z", re.ASCII)
_RESERVED = re.compile(r"(true|false|yes|no|on|off|y|n|null|~|\.inf|\.nan|\.[\d_].*)\Z", re.IGNORECASE)


def apply_changes(data: bytes, filename: str, changes: Changes[str, object]) -> bytes:
    """Return a YAML file's bytes with top-level keys set, or removed if the value is None.

    ``filename`` is the file's name in error messages.
    """
    before = parse(data, filename)
    if before.flow:
        raise ConfigError(
            "cannot edit a file in YAML flow style ({key: value})",
            "write one `key: value` per line, or edit the file by hand",
            path=filename,
            line=before.line,
        )
    text = decode(data, filename)
    try:
        for name, value in changes.items():
            text = _change(parse(text.encode(), filename), text, name, value)
        after = parse(text.encode(), filename)
    except (ConfigError, ValueError):  # ValueError: a key without a colon (`? key`)
        after = None
    if after is None or _read_values(after) != _expected_values(before, changes):
        raise ConfigError(
            f"cannot change {', '.join(changes)} without affecting the rest of the file",
            "edit the file by hand",
            path=filename,
        )
    bom = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
    return bom + text.encode()


def _change(mapping: Mapping, text: str, name: str, value: object) -> str:
    for key, node in mapping.pairs:
        if normalize_key(key.text) == normalize_key(name):
            return _remove(text, key, node) if value is None else _set(text, key, node, value)
    return text if value is None else _append(mapping, text, name, value)


def _set(text: str, key: Scalar, node: Node, value: object) -> str:
    colon = text.index(":", key.end) + 1
    end = max(colon, _value_end(text, node))
    first = _line_start(text, node.start)
    is_block = not isinstance(node, Scalar) and not node.flow
    if is_block and isinstance(value, list | tuple | dict) and value:
        # Comments between the key and its first item are kept.
        indent = text[first : node.start]
        column = text[_line_start(text, key.start) : key.start]
        if isinstance(value, dict) and indent == column:
            indent += "  "  # YAML allows a list without indentation below its key, but not a mapping
        return text[:first] + _block(value, indent, _newline(text)) + text[end:]
    style = node.style if isinstance(node, Scalar) else ""
    # If the old value was on its own lines, the comments before it are kept.
    between = text[colon:first].rstrip("\r\n") if first > colon else ""
    return text[:colon] + " " + _inline(value, style) + between + text[end:]


def _remove(text: str, key: Scalar, node: Node) -> str:
    end = _line_end(text, max(_value_end(text, node), key.end))
    line_break = 2 if text.startswith("\r\n", end) else 1
    return text[: _line_start(text, key.start)] + text[end + line_break :]


def _append(mapping: Mapping, text: str, name: str, value: object) -> str:
    newline = _newline(text)
    indent, at = "", len(text)
    if mapping.pairs:
        key, node = mapping.pairs[-1]
        indent = text[_line_start(text, key.start) : key.start]
        at = _line_end(text, max(_value_end(text, node), key.end))
    head, tail = text[:at], text[at:]
    if head and not head.endswith("\n"):
        head += newline
        tail = tail.removeprefix("\r").removeprefix("\n")
    line = f"{indent}{scalar_text(name)}: {_inline(value)}"
    if isinstance(value, list | tuple | dict) and value:
        line = f"{indent}{scalar_text(name)}:{newline}" + _block(value, indent + "  ", newline)
    return head + line + newline + tail


# -- places in the text ----------------------------------------------------------------------------


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    if end < 0:
        return len(text)
    return end - 1 if text[end - 1 : end] == "\r" and end > at else end


def _value_end(text: str, node: Node) -> int:
    """Return the end of a value, excluding blank lines at the end of a block scalar."""
    return node.start + len(text[node.start : node.end].rstrip())


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


# -- values as text --------------------------------------------------------------------------------


def _block(value: object, indent: str, newline: str) -> str:
    if isinstance(value, dict):
        lines = [f"{scalar_text(str(name))}: {_inline(item)}" for name, item in value.items()]
    else:
        assert isinstance(value, list | tuple)
        lines = [f"- {_inline(item)}" for item in value]
    return newline.join(indent + line for line in lines)


def _inline(value: object, style: str = "") -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar_text(str(name))}: {_inline(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    return scalar_text(value, style)


def scalar_text(value: object, style: str = "") -> str:
    """Format a value in the quoting style of the old value if that style can represent it."""
    if not isinstance(value, str):
        return "null" if value is None else str(value).lower()
    if style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if style != '"' and _BARE.match(value) and not _RESERVED.match(value) and "," not in value:
        return value
    return '"' + "".join(_escape(char) for char in value) + '"'


def _escape(char: str) -> str:
    if char in '\\"':
        return "\\" + char
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


# -- on disk ---------------------------------------------------------------------------------------


def _read_values(mapping: Mapping) -> dict[str, object]:
    return {normalize_key(key.text): to_python(node) for key, node in mapping.pairs}


def _expected_values(before: Mapping, changes: Changes[str, object]) -> dict[str, object]:
    """Return the values that the new text must contain: the old values plus the changes."""
    values = _read_values(before) | {normalize_key(name): _normalize(value) for name, value in changes.items()}
    removed = {normalize_key(name) for name, value in changes.items() if value is None}
    return {name: value for name, value in values.items() if name not in removed}


def _normalize(value: object) -> object:
    if isinstance(value, dict):
        return {str(name): _normalize(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normalize(item) for item in value]
    return value if value is None or isinstance(value, str) else str(value).lower()


def replace_file(path: Path, data: bytes, filename: str, root: Path) -> None:
    """Replace a file atomically and durably.

    A symbolic link is kept. A link to a file outside the project is rejected.
    """
    target = os.path.realpath(path)
    if is_outside(target, root):
        raise ConfigError(
            "cannot change the file: it is a link to a file outside the project",
            "replace the link with a regular file",
            path=filename,
        )
    temporary = f"{target}.{os.urandom(4).hex()}.tmp"
    try:
        mode = os.stat(target).st_mode & 0o7777
        with open(temporary, "xb") as file:
            os.chmod(temporary, mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise ConfigError(f"cannot write the file: {error.strerror}", path=filename) from None
