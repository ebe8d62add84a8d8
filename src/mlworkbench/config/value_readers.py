"""Readers for each kind of value.

A reader converts a node of the file into a value or reports a problem at its line. The table in
``keys`` selects the kind. A new kind needs a function here and an entry in ``READERS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..plugin_registry import known
from ..remote.shared.gpu_request import EXAMPLES, parse
from ..remote.shared.process_launchers import parse_process_count
from ..remote.shared.retry_causes import CAUSES, MAX_RETRIES
from ..remote.shared.shell_variables import is_secret_name
from ..retries import parse_duration
from .config_problems import Diagnostics, InvalidValue
from .keys import TYPE_ALIASES, Key, closest_match
from .project_files import is_plain_name
from .yaml_tree import Mapping, Node, Scalar, Sequence, describe, to_python

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SIZE = re.compile(r"\d+(\.\d+)?\s*([KMGT]i?)?B?\Z", re.IGNORECASE)
_AMOUNT = re.compile(r"\d+[kmgt]?\Z")
_NUMBER = re.compile(r"\d+(\.\d+)?\Z")
_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")
GOALS = ("max", "min")
SECRET_POINTER = "AzureMlSecret="
MAX_NAMES = 200  # maximum number of items in PassEnvironment and Keep, and length of a variable's name


def _text(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    if not isinstance(node, Scalar):
        raise InvalidValue(node, f"{key.name} must be a string, not {describe(node)}")
    if not node.text.strip() or not node.text.isprintable():
        raise InvalidValue(node, f"{key.name} is empty or contains a line break or control character")
    return node.text


def _word(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    """Read a string used as one command argument. A leading dash would turn it into an option."""
    text = _text(key, node, diagnostics)
    if text.startswith("-") or " " in text:
        raise InvalidValue(node, f"{key.name} must not contain spaces or start with a dash: {describe(node)}")
    return text


def _secret(key: Key, node: Node, diagnostics: Diagnostics) -> str | None:
    if not isinstance(node, Scalar):
        raise InvalidValue(node, f"{key.name} must be a string, not {describe(node)}")
    if node.text.startswith(SECRET_POINTER):
        return node.text
    diagnostics.warn(
        node.line,
        f"{key.name} is a secret in a file that is copied with the project",
        "remove the line and change the password; 'mlw computetarget attach' needs it only once",
    )
    return None  # the secret is discarded


def _flag(key: Key, node: Node, diagnostics: Diagnostics) -> bool:
    text = node.text.lower() if isinstance(node, Scalar) else ""
    if text not in _TRUE + _FALSE:
        raise InvalidValue(node, f"{key.name} must be true or false, not {describe(node)}")
    return text in _TRUE


def _choice(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    text = _text(key, node, diagnostics)
    choices = {choice.lower(): choice for choice in key.choices}
    if key.field == "type":
        choices |= TYPE_ALIASES
    if text.lower() in choices:
        return choices[text.lower()]
    if key.plugins and text in known(key.plugins):
        return text  # a plugin's value may resemble a built-in value
    suggestion = closest_match(text, key.choices)
    hint = f"did you mean {suggestion!r}?" if suggestion else None
    message = f"{key.name} must be one of {', '.join(key.choices)}, not {describe(node)}"
    if suggestion or not key.open:
        raise InvalidValue(node, message, hint)
    if key.plugins:
        diagnostics.warn(
            node.line,
            f"{key.name} {text!r} is not built in; built in: {', '.join(key.choices)}",
            "install a plugin with that name",
        )
    return text


def _name(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    text = _text(key, node, diagnostics)
    if not is_plain_name(text):
        raise InvalidValue(
            node,
            f"{key.name} must be the name of a .compute file, not {describe(node)}",
            "use the name without folder and extension",
        )
    return text


def _inside(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    # The original also ran on Windows, where users type backslashes.
    path = _text(key, node, diagnostics).replace("\\", "/")
    parts = path.split("/")
    if path.startswith(("/", "~")) or ".." in parts or ":" in parts[0] or path.strip() != path or not path:
        raise InvalidValue(
            node,
            f"{key.name} must be a path inside the project, not {describe(node)}",
            "copy the file into the project: mlw uploads only the project to the target",
        )
    return path


def _fetch(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    text = _text(key, node, diagnostics).strip()
    if text.lower() in ("all", "none"):
        return text.lower()
    if not _SIZE.match(text):
        raise InvalidValue(node, f"{key.name} must be all, none, or a size such as 500 MB, not {describe(node)}")
    return text


def _gpus(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    text = _text(key, node, diagnostics).strip()
    try:
        parse(text)
    except ValueError as error:
        raise InvalidValue(node, f"{key.name}: {error}", f"for example {EXAMPLES}") from None
    return text


def _count(key: Key, node: Node, diagnostics: Diagnostics) -> int:
    text = _text(key, node, diagnostics)
    if not text.isascii() or not text.isdigit() or len(text) > 4 or int(text) > MAX_RETRIES:
        raise InvalidValue(node, f"{key.name} must be a number from 0 to {MAX_RETRIES}, not {describe(node)}")
    return int(text)


def _retry_causes(key: Key, node: Node, diagnostics: Diagnostics) -> tuple[str, ...]:
    for item in _items(key, node):
        if not isinstance(item, Scalar) or item.text not in CAUSES:
            suggestion = closest_match(item.text, CAUSES) if isinstance(item, Scalar) else None
            hint = f"did you mean {suggestion!r}?" if suggestion else None
            raise InvalidValue(
                item, f"an item of {key.name} must be one of {', '.join(CAUSES)}, not {describe(item)}", hint
            )
    return tuple(dict.fromkeys(item.text for item in _items(key, node) if isinstance(item, Scalar)))


def _duration(key: Key, node: Node, diagnostics: Diagnostics) -> float:
    seconds = parse_duration(_text(key, node, diagnostics))
    if seconds is None:
        raise InvalidValue(node, f"{key.name} must be a duration such as 10s or 5m, not {describe(node)}")
    return seconds


def _processes(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    text = _text(key, node, diagnostics).strip()
    try:
        return parse_process_count(text)
    except ValueError as error:
        raise InvalidValue(node, f"{key.name}: {error}") from None


def _port(key: Key, node: Node, diagnostics: Diagnostics) -> int:
    text = _text(key, node, diagnostics)
    # Longer strings are not ports, and int() raises for thousands of digits.
    if not text.isascii() or not text.isdigit() or len(text) > 5 or not 0 < int(text) < 65536:
        raise InvalidValue(node, f"{key.name} must be a number from 1 to 65535, not {describe(node)}")
    return int(text)


def _amount(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    """Read a number of bytes in Docker's notation."""
    text = _text(key, node, diagnostics).strip().lower().removesuffix("b")
    if not _AMOUNT.match(text):
        raise InvalidValue(node, f"{key.name} must be an amount of memory such as 512m or 8g, not {describe(node)}")
    return text


def _number(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    text = _text(key, node, diagnostics).strip()
    if not _NUMBER.match(text) or not float(text) > 0:
        raise InvalidValue(node, f"{key.name} must be a number such as 2 or 2.5, not {describe(node)}")
    return text


def _items(key: Key, node: Node) -> tuple[Node, ...]:
    if not isinstance(node, Sequence):
        raise InvalidValue(
            node, f"{key.name} must be a list, not {describe(node)}", "write one `- item` per line under the key"
        )
    return node.items


def _texts(key: Key, node: Node, diagnostics: Diagnostics) -> tuple[str, ...]:
    for item in _items(key, node):
        if not isinstance(item, Scalar):
            raise InvalidValue(
                item,
                f"an item of {key.name} must be a string, not {describe(item)}",
                "quote an item that contains ': '",
            )
        if item.text == "" and not item.style:
            raise InvalidValue(item, f"an item of {key.name} is empty", 'use "" for an empty string')
    return tuple(item.text for item in _items(key, node) if isinstance(item, Scalar))


def _arguments(key: Key, node: Node, diagnostics: Diagnostics) -> tuple[str, ...]:
    if isinstance(node, Scalar):
        raise InvalidValue(
            node,
            f"{key.name} must be a list, not {describe(node)}",
            "write each argument as an item: [train.py, --lr, 0.1]",
        )
    return _texts(key, node, diagnostics)


def _pairs(key: Key, node: Node) -> tuple[tuple[Scalar, Node], ...]:
    if not isinstance(node, Mapping):
        raise InvalidValue(
            node,
            f"{key.name} must be a mapping of names to values, not {describe(node)}",
            "write one `NAME: value` per line under the key",
        )
    return node.pairs


def _texts_by_name(key: Key, node: Node, diagnostics: Diagnostics) -> dict[str, str]:
    texts = {}
    for name, value in _pairs(key, node):
        if not isinstance(value, Scalar):
            raise InvalidValue(value, f"{name.text} in {key.name} must be a string, not {describe(value)}")
        texts[name.text] = value.text
    return texts


def _goals(key: Key, node: Node, diagnostics: Diagnostics) -> dict[str, str]:
    goals = {}
    for name, value in _pairs(key, node):
        if not isinstance(value, Scalar) or value.text not in GOALS:
            raise InvalidValue(value, f"{name.text} in {key.name} must be max or min, not {describe(value)}")
        goals[name.text] = value.text
    return goals


def _variables(key: Key, node: Node, diagnostics: Diagnostics) -> dict[str, str]:
    for name, value in _pairs(key, node):
        if not _VARIABLE.match(name.text):
            raise InvalidValue(
                name,
                f"{name.text!r} in {key.name} is not a valid name for an environment variable",
                "use letters, digits, and _; do not start with a digit",
            )
        # An empty value is an empty string, but null is ambiguous: the string "null", or no variable.
        if isinstance(value, Scalar) and value.is_null and value.text:
            raise InvalidValue(
                value,
                f"{name.text} in {key.name} is null",
                f'use "{value.text}" for that string, "" for an empty string, or remove the line',
            )
    return _texts_by_name(key, node, diagnostics)


def _variable_names(key: Key, node: Node, diagnostics: Diagnostics) -> tuple[str, ...]:
    """Read names of variables, ``default``, or ``none``. Names of secrets are errors."""
    items = (node,) if isinstance(node, Scalar) and node.text in ("default", "none") else _items(key, node)
    if len(items) > MAX_NAMES:
        raise InvalidValue(node, f"{key.name} has more than {MAX_NAMES} names")
    for item in items:
        if not isinstance(item, Scalar) or not _VARIABLE.match(item.text) or len(item.text) > MAX_NAMES:
            raise InvalidValue(
                item,
                f"an item of {key.name} must be the name of a variable, not {describe(item)}",
                "use letters, digits, and _; set values in EnvironmentVariables",
            )
        if is_secret_name(item.text):
            raise InvalidValue(
                item,
                f"{key.name} cannot pass {item.text}: the name suggests a secret",
                f"remove it, and submit with --secret {item.text}, which does not store the value",
            )
    names = tuple(item.text for item in items if isinstance(item, Scalar))
    if "none" in names and len(names) > 1:
        raise InvalidValue(node, f"{key.name} combines none with other names", "remove none, or all other names")
    return () if names == ("none",) else names


def _kept_paths(key: Key, node: Node, diagnostics: Diagnostics) -> tuple[str, ...]:
    """Read relative paths below the working copy, and return them without ``.`` and trailing slashes."""
    items = _items(key, node)
    if len(items) > MAX_NAMES:
        raise InvalidValue(node, f"{key.name} has more than {MAX_NAMES} items")
    paths = []
    for item in items:
        path = _inside(key, item, diagnostics)
        names = [name for name in path.split("/") if name not in ("", ".")]
        if not names or names[0] == "outputs":
            raise InvalidValue(
                item,
                f"an item of {key.name} must be a path outside of outputs/, not {describe(item)}",
                "name a file or folder outside of outputs/, which mlw always collects",
            )
        paths.append("/".join(names))
    return tuple(dict.fromkeys(paths))


def _tree(key: Key, node: Node, diagnostics: Diagnostics) -> dict[str, Any]:
    return {name.text: to_python(value) for name, value in _pairs(key, node)}


def _packages(key: Key, node: Node, diagnostics: Diagnostics) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read the conda and pip packages. The only mapping allowed in the list is ``{pip: [...]}``."""
    conda: list[str] = []
    pip: list[str] = []
    for item in _items(key, node):
        if isinstance(item, Scalar) and item.text:
            conda.append(item.text)
        elif isinstance(item, Mapping):
            pip.extend(_pip(item, diagnostics))
        else:
            raise InvalidValue(item, f"an item of {key.name} must be a package, not {describe(item)}")
    return tuple(conda), tuple(pip)


def _pip(item: Mapping, diagnostics: Diagnostics) -> tuple[str, ...]:
    packages: tuple[str, ...] = ()
    for name, value in item.pairs:
        if name.text != "pip":
            raise InvalidValue(
                name,
                f"{name.text!r} is neither a package nor the list of pip packages",
                "put pip packages in a list below `- pip:`, or remove the colon",
            )
        if not (isinstance(value, Scalar) and value.is_null):
            packages = _texts(Key("pip", "texts", ""), value, diagnostics)
    return packages


def _coordinates(key: Key, node: Node, diagnostics: Diagnostics) -> tuple[str, ...]:
    return tuple(_coordinate(item) for item in _items(key, node))


def _coordinate(item: Node) -> str:
    """Return ``group:artifact:version`` from such a string or from a mapping with these keys."""
    hint = "specify group, artifact, and version"
    if isinstance(item, Scalar) and item.text.count(":") == 2:
        return item.text
    if not isinstance(item, Mapping):
        raise InvalidValue(item, f"an item of packages must be a Maven package, not {describe(item)}", hint)
    parts = {name.text: value for name, value in item.pairs}
    coordinate = []
    for part in ("group", "artifact", "version"):
        value = parts.get(part)
        if not isinstance(value, Scalar) or value.is_null:
            raise InvalidValue(item, f"Maven package without {part}", hint)
        coordinate.append(value.text)
    return ":".join(coordinate)


READERS: dict[str, Callable[[Key, Node, Diagnostics], Any]] = {
    "text": _text,
    "word": _word,
    "secret": _secret,
    "flag": _flag,
    "choice": _choice,
    "name": _name,
    "inside": _inside,
    "fetch": _fetch,
    "gpus": _gpus,
    "count": _count,
    "retry_causes": _retry_causes,
    "duration": _duration,
    "processes": _processes,
    "port": _port,
    "amount": _amount,
    "number": _number,
    "texts": _texts,
    "arguments": _arguments,
    "texts_by_name": _texts_by_name,
    "goals": _goals,
    "variables": _variables,
    "variable_names": _variable_names,
    "kept_paths": _kept_paths,
    "tree": _tree,
    "packages": _packages,
    "coordinates": _coordinates,
}
