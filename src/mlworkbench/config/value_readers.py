"""One reader per kind of value: a node of the file becomes a value, or a problem at its line.

A kind is what ``keys`` names it; a new one is a function here and a row at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..registry import known
from ..remote.shared.gpu_request import EXAMPLES, parse
from .keys import SAME_TYPE, Key, nearest
from .notes import Notes, Wrong
from .place import is_plain_name
from .yamlfile import Mapping, Node, Scalar, Sequence, describe, plain

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SIZE = re.compile(r"\d+(\.\d+)?\s*([KMGT]i?)?B?\Z", re.IGNORECASE)
_AMOUNT = re.compile(r"\d+[kmgt]?\Z")
_NUMBER = re.compile(r"\d+(\.\d+)?\Z")
_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")
SECRET_POINTER = "AzureMlSecret="


def _text(key: Key, node: Node, notes: Notes) -> str:
    if not isinstance(node, Scalar):
        raise Wrong(node, f"{key.name} must be a string, not {describe(node)}")
    if not node.text.strip() or not node.text.isprintable():
        raise Wrong(node, f"{key.name} is empty or contains a line break or control character")
    return node.text


def _word(key: Key, node: Node, notes: Notes) -> str:
    """A text that becomes one argument of a program; a leading dash would make it an option there."""
    text = _text(key, node, notes)
    if text.startswith("-") or " " in text:
        raise Wrong(node, f"{key.name} must not contain spaces or start with a dash: {describe(node)}")
    return text


def _secret(key: Key, node: Node, notes: Notes) -> str | None:
    if not isinstance(node, Scalar):
        raise Wrong(node, f"{key.name} must be a string, not {describe(node)}")
    if node.text.startswith(SECRET_POINTER):
        return node.text
    notes.warn(
        node.line,
        f"{key.name} is a secret in a file that is copied with the project",
        "remove the line and change the password; 'mlw computetarget attach' needs it only once",
    )
    return None  # so that it can get no further


def _flag(key: Key, node: Node, notes: Notes) -> bool:
    word = node.text.lower() if isinstance(node, Scalar) else ""
    if word not in _TRUE + _FALSE:
        raise Wrong(node, f"{key.name} must be true or false, not {describe(node)}")
    return word in _TRUE


def _choice(key: Key, node: Node, notes: Notes) -> str:
    text = _text(key, node, notes)
    spelled = {choice.lower(): choice for choice in key.choices}
    if key.field == "type":
        spelled |= SAME_TYPE
    if text.lower() in spelled:
        return spelled[text.lower()]
    if key.plugins and text in known(key.plugins):
        return text  # though it may look like a slip of the pen
    near = nearest(text, key.choices)
    hint = f"did you mean {near!r}?" if near else None
    message = f"{key.name} must be one of {', '.join(key.choices)}, not {describe(node)}"
    if near or not key.open:
        raise Wrong(node, message, hint)
    if key.plugins:
        notes.warn(
            node.line,
            f"{key.name} {text!r} is not built in; built in: {', '.join(key.choices)}",
            "install a plugin with that name",
        )
    return text


def _name(key: Key, node: Node, notes: Notes) -> str:
    text = _text(key, node, notes)
    if not is_plain_name(text):
        raise Wrong(
            node,
            f"{key.name} must be the name of a .compute file, not {describe(node)}",
            "use the name without folder and extension",
        )
    return text


def _inside(key: Key, node: Node, notes: Notes) -> str:
    # The original also ran on Windows, whose users write backslashes.
    path = _text(key, node, notes).replace("\\", "/")
    parts = path.split("/")
    if path.startswith(("/", "~")) or ".." in parts or ":" in parts[0] or path.strip() != path or not path:
        raise Wrong(
            node,
            f"{key.name} must be a path inside the project, not {describe(node)}",
            "copy the file into the project: mlw uploads only the project to the target",
        )
    return path


def _fetch(key: Key, node: Node, notes: Notes) -> str:
    text = _text(key, node, notes).strip()
    if text.lower() in ("all", "none"):
        return text.lower()
    if not _SIZE.match(text):
        raise Wrong(node, f"{key.name} must be all, none, or a size such as 500 MB, not {describe(node)}")
    return text


def _gpus(key: Key, node: Node, notes: Notes) -> str:
    text = _text(key, node, notes).strip()
    try:
        parse(text)
    except ValueError as error:
        raise Wrong(node, f"{key.name}: {error}", f"for example {EXAMPLES}") from None
    return text


def _port(key: Key, node: Node, notes: Notes) -> int:
    text = _text(key, node, notes)
    # More digits than these are no port, and some thousand of them no number that Python reads.
    if not text.isascii() or not text.isdigit() or len(text) > 5 or not 0 < int(text) < 65536:
        raise Wrong(node, f"{key.name} must be a number from 1 to 65535, not {describe(node)}")
    return int(text)


def _amount(key: Key, node: Node, notes: Notes) -> str:
    """Bytes, as Docker writes them."""
    text = _text(key, node, notes).strip().lower().removesuffix("b")
    if not _AMOUNT.match(text):
        raise Wrong(node, f"{key.name} must be an amount of memory such as 512m or 8g, not {describe(node)}")
    return text


def _number(key: Key, node: Node, notes: Notes) -> str:
    text = _text(key, node, notes).strip()
    if not _NUMBER.match(text) or not float(text) > 0:
        raise Wrong(node, f"{key.name} must be a number such as 2 or 2.5, not {describe(node)}")
    return text


def _items(key: Key, node: Node) -> tuple[Node, ...]:
    if not isinstance(node, Sequence):
        raise Wrong(
            node, f"{key.name} must be a list, not {describe(node)}", "write one `- item` per line under the key"
        )
    return node.items


def _texts(key: Key, node: Node, notes: Notes) -> tuple[str, ...]:
    for item in _items(key, node):
        if not isinstance(item, Scalar):
            raise Wrong(
                item,
                f"an item of {key.name} must be a string, not {describe(item)}",
                "quote an item that contains ': '",
            )
        if item.text == "" and not item.style:
            raise Wrong(item, f"an item of {key.name} is empty", 'use "" for an empty string')
    return tuple(item.text for item in _items(key, node) if isinstance(item, Scalar))


def _arguments(key: Key, node: Node, notes: Notes) -> tuple[str, ...]:
    if isinstance(node, Scalar):
        raise Wrong(
            node,
            f"{key.name} must be a list, not {describe(node)}",
            "write each argument as an item: [train.py, --lr, 0.1]",
        )
    return _texts(key, node, notes)


def _pairs(key: Key, node: Node) -> tuple[tuple[Scalar, Node], ...]:
    if not isinstance(node, Mapping):
        raise Wrong(
            node,
            f"{key.name} must be a mapping of names to values, not {describe(node)}",
            "write one `NAME: value` per line under the key",
        )
    return node.pairs


def _texts_by_name(key: Key, node: Node, notes: Notes) -> dict[str, str]:
    texts = {}
    for name, value in _pairs(key, node):
        if not isinstance(value, Scalar):
            raise Wrong(value, f"{name.text} in {key.name} must be a string, not {describe(value)}")
        texts[name.text] = value.text
    return texts


def _variables(key: Key, node: Node, notes: Notes) -> dict[str, str]:
    for name, value in _pairs(key, node):
        if not _VARIABLE.match(name.text):
            raise Wrong(
                name,
                f"{name.text!r} in {key.name} is not a valid name for an environment variable",
                "use letters, digits, and _; do not start with a digit",
            )
        # An empty value is an empty text; but who writes null may mean the word, or no variable at all.
        if isinstance(value, Scalar) and value.null and value.text:
            raise Wrong(
                value,
                f"{name.text} in {key.name} is null",
                f'use "{value.text}" for that string, "" for an empty string, or remove the line',
            )
    return _texts_by_name(key, node, notes)


def _tree(key: Key, node: Node, notes: Notes) -> dict[str, Any]:
    return {name.text: plain(value) for name, value in _pairs(key, node)}


def _packages(key: Key, node: Node, notes: Notes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Conda's packages and pip's: the only mapping among the items is {pip: [...]}."""
    conda: list[str] = []
    pip: list[str] = []
    for item in _items(key, node):
        if isinstance(item, Scalar) and item.text:
            conda.append(item.text)
        elif isinstance(item, Mapping):
            pip.extend(_pip(item, notes))
        else:
            raise Wrong(item, f"an item of {key.name} must be a package, not {describe(item)}")
    return tuple(conda), tuple(pip)


def _pip(item: Mapping, notes: Notes) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    for name, value in item.pairs:
        if name.text != "pip":
            raise Wrong(
                name,
                f"{name.text!r} is neither a package nor the list of pip packages",
                "put pip packages in a list below `- pip:`, or remove the colon",
            )
        if not (isinstance(value, Scalar) and value.null):
            found = _texts(Key("pip", "texts", ""), value, notes)
    return found


def _coordinates(key: Key, node: Node, notes: Notes) -> tuple[str, ...]:
    return tuple(_coordinate(item) for item in _items(key, node))


def _coordinate(item: Node) -> str:
    """group:artifact:version, from a mapping of the three or from a text that is one already."""
    hint = "specify group, artifact, and version"
    if isinstance(item, Scalar) and item.text.count(":") == 2:
        return item.text
    if not isinstance(item, Mapping):
        raise Wrong(item, f"an item of packages must be a Maven package, not {describe(item)}", hint)
    parts = {name.text: value for name, value in item.pairs}
    words = []
    for part in ("group", "artifact", "version"):
        value = parts.get(part)
        if not isinstance(value, Scalar) or value.null:
            raise Wrong(item, f"Maven package without {part}", hint)
        words.append(value.text)
    return ":".join(words)


READERS: dict[str, Callable[[Key, Node, Notes], Any]] = {
    "text": _text,
    "word": _word,
    "secret": _secret,
    "flag": _flag,
    "choice": _choice,
    "name": _name,
    "inside": _inside,
    "fetch": _fetch,
    "gpus": _gpus,
    "port": _port,
    "amount": _amount,
    "number": _number,
    "texts": _texts,
    "arguments": _arguments,
    "texts_by_name": _texts_by_name,
    "variables": _variables,
    "tree": _tree,
    "packages": _packages,
    "coordinates": _coordinates,
}
