"""Changes keys of a file of aml_config and leaves every other byte of it alone.

The new value is put into the text where the old one stood. A YAML library that writes the whole file anew
loses the comments behind a removed key or a replaced list, and changes numbers such as 0.10 on the way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping as Changes
from pathlib import Path

from ..errors import ConfigError
from .keys import same_key
from .place import leads_out
from .yamlfile import Mapping, Node, Scalar, decode, parse, plain

# What needs no quotes in YAML, and what looks like that but is a truth value, nothing, or a number there.
_BARE = re.compile(r"[A-Za-z_./$~][\w./@+=$~-]*(:[\w./@+=$~-]+)*\Z", re.ASCII)
_OTHERWISE = re.compile(r"(true|false|yes|no|on|off|y|n|null|~|\.inf|\.nan|\.[\d_].*)\Z", re.IGNORECASE)


def rewritten(data: bytes, shown: str, changes: Changes[str, object]) -> bytes:
    """The bytes of a YAML file with top-level keys set, or removed by None; errors call it ``shown``."""
    before = parse(data, shown)
    if before.flow:
        raise ConfigError(
            "cannot edit a file in YAML flow style ({key: value})",
            "write one `key: value` per line, or edit the file by hand",
            path=shown,
            line=before.line,
        )
    text = decode(data, shown)
    try:
        for name, value in changes.items():
            text = _change(parse(text.encode(), shown), text, name, value)
        after = parse(text.encode(), shown)
    except (ConfigError, ValueError):  # the latter for a key without a colon, `? key`
        after = None
    if after is None or _said(after) != _wanted(before, changes):
        raise ConfigError(
            f"cannot change {', '.join(changes)} without affecting the rest of the file",
            "edit the file by hand",
            path=shown,
        )
    mark = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
    return mark + text.encode()


def _change(mapping: Mapping, text: str, name: str, value: object) -> str:
    for key, node in mapping.pairs:
        if same_key(key.text) == same_key(name):
            return _remove(text, key, node) if value is None else _set(text, key, node, value)
    return text if value is None else _append(mapping, text, name, value)


def _set(text: str, key: Scalar, node: Node, value: object) -> str:
    colon = text.index(":", key.end) + 1
    stop = max(colon, _stop(text, node))
    first = _line_start(text, node.start)
    is_block = not isinstance(node, Scalar) and not node.flow
    if is_block and isinstance(value, list | tuple | dict) and value:
        # Comments between the key and its first item stay where they are.
        indent = text[first : node.start]
        column = text[_line_start(text, key.start) : key.start]
        if isinstance(value, dict) and indent == column:
            indent += "  "  # a list may stand below its key without being indented, a mapping not
        return text[:first] + _block(value, indent, _newline(text)) + text[stop:]
    style = node.style if isinstance(node, Scalar) else ""
    # An old value on lines of its own leaves its place to the comments that stood before it.
    between = text[colon:first].rstrip("\r\n") if first > colon else ""
    return text[:colon] + " " + _inline(value, style) + between + text[stop:]


def _remove(text: str, key: Scalar, node: Node) -> str:
    end = _line_end(text, max(_stop(text, node), key.end))
    line_break = 2 if text.startswith("\r\n", end) else 1
    return text[: _line_start(text, key.start)] + text[end + line_break :]


def _append(mapping: Mapping, text: str, name: str, value: object) -> str:
    newline = _newline(text)
    indent, at = "", len(text)
    if mapping.pairs:
        key, node = mapping.pairs[-1]
        indent = text[_line_start(text, key.start) : key.start]
        at = _line_end(text, max(_stop(text, node), key.end))
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


def _stop(text: str, node: Node) -> int:
    """End of a value without the blank lines that belong to a block text."""
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
    """One value in the quotes that stood there before, if they can hold it."""
    if not isinstance(value, str):
        return "null" if value is None else str(value).lower()
    if style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if style != '"' and _BARE.match(value) and not _OTHERWISE.match(value) and "," not in value:
        return value
    return '"' + "".join(_escaped(sign) for sign in value) + '"'


def _escaped(sign: str) -> str:
    if sign in '\\"':
        return "\\" + sign
    if sign.isprintable():
        return sign
    code = ord(sign)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


# -- on disk ---------------------------------------------------------------------------------------


def _said(mapping: Mapping) -> dict[str, object]:
    return {same_key(key.text): plain(node) for key, node in mapping.pairs}


def _wanted(before: Mapping, changes: Changes[str, object]) -> dict[str, object]:
    """What the new text must say: what was asked, and otherwise what the old one said."""
    wanted = _said(before) | {same_key(name): _as_read(value) for name, value in changes.items()}
    removed = {same_key(name) for name, value in changes.items() if value is None}
    return {name: value for name, value in wanted.items() if name not in removed}


def _as_read(value: object) -> object:
    if isinstance(value, dict):
        return {str(name): _as_read(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_read(item) for item in value]
    return value if value is None or isinstance(value, str) else str(value).lower()


def replace_file(path: Path, data: bytes, shown: str, root: Path) -> None:
    """All or nothing, also when the power fails. A link stays a link, and one out of the project is refused."""
    target = os.path.realpath(path)
    if leads_out(target, root):
        raise ConfigError(
            "cannot change the file: it is a link to a file outside the project",
            "replace the link with a regular file",
            path=shown,
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
        raise ConfigError(f"cannot write the file: {error.strerror}", path=shown) from None
