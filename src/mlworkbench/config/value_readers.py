"""Readers for each kind of value.

A reader converts a node of the file into a value or reports a problem at its line. The table in
``keys`` selects the kind. A new kind needs a function here and an entry in ``READERS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..remote.shared.retry_causes import CAUSES
from ..remote.shared.shell_variables import is_secret_name
from ..slurm_options import refused_option
from .config_problems import Diagnostics, InvalidValue
from .keys import Key, closest_match
from .scalar_readers import SCALAR_READERS, read_inside
from .yaml_tree import Mapping, Node, Scalar, Sequence, describe, to_python

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
GOALS = ("max", "min")
MAX_NAMES = 200  # maximum number of items in PassEnvironment and Keep, and length of a variable's name


def _retry_causes(key: Key, node: Node, diagnostics: Diagnostics) -> tuple[str, ...]:
    for item in _items(key, node):
        if not isinstance(item, Scalar) or item.text not in CAUSES:
            suggestion = closest_match(item.text, CAUSES) if isinstance(item, Scalar) else None
            hint = f"did you mean {suggestion!r}?" if suggestion else None
            raise InvalidValue(
                item, f"an item of {key.name} must be one of {', '.join(CAUSES)}, not {describe(item)}", hint
            )
    return tuple(dict.fromkeys(item.text for item in _items(key, node) if isinstance(item, Scalar)))


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


def _sbatch_options(key: Key, node: Node, diagnostics: Diagnostics) -> tuple[str, ...]:
    options = _texts(key, node, diagnostics)
    for item in _items(key, node):
        refused = refused_option(item.text) if isinstance(item, Scalar) else None
        if refused:
            raise InvalidValue(item, f"{key.name}: {refused[0]}", refused[1])
    return options


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
        path = read_inside(key, item, diagnostics)
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
    **SCALAR_READERS,
    "retry_causes": _retry_causes,
    "texts": _texts,
    "arguments": _arguments,
    "sbatch_options": _sbatch_options,
    "texts_by_name": _texts_by_name,
    "goals": _goals,
    "variables": _variables,
    "variable_names": _variable_names,
    "kept_paths": _kept_paths,
    "tree": _tree,
    "packages": _packages,
    "coordinates": _coordinates,
}
