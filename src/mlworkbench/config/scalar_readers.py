"""Readers for values that are a single scalar: texts, numbers, and choices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..plugin_registry import known
from ..remote.shared.gpu_request import EXAMPLES, parse
from ..remote.shared.process_launchers import parse_process_count
from ..remote.shared.retry_causes import MAX_RETRIES
from ..retries import parse_duration
from ..slurm_options import TIME_EXAMPLES, parse_time_limit
from .config_problems import Diagnostics, InvalidValue
from .keys import TYPE_ALIASES, Key, closest_match
from .project_files import is_plain_name
from .yaml_tree import Node, Scalar, describe

_SIZE = re.compile(r"\d+(\.\d+)?\s*([KMGT]i?)?B?\Z", re.IGNORECASE)
_AMOUNT = re.compile(r"\d+[kmgt]?\Z")
_NUMBER = re.compile(r"\d+(\.\d+)?\Z")
_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")
SECRET_POINTER = "AzureMlSecret="


def read_text(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    if not isinstance(node, Scalar):
        raise InvalidValue(node, f"{key.name} must be a string, not {describe(node)}")
    if not node.text.strip() or not node.text.isprintable():
        raise InvalidValue(node, f"{key.name} is empty or contains a line break or control character")
    return node.text


def _word(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    """Read a string used as one command argument. A leading dash would turn it into an option."""
    text = read_text(key, node, diagnostics)
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
    text = read_text(key, node, diagnostics)
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
    text = read_text(key, node, diagnostics)
    if not is_plain_name(text):
        raise InvalidValue(
            node,
            f"{key.name} must be the name of a .compute file, not {describe(node)}",
            "use the name without folder and extension",
        )
    return text


def read_inside(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    # The original also ran on Windows, where users type backslashes.
    path = read_text(key, node, diagnostics).replace("\\", "/")
    parts = path.split("/")
    if path.startswith(("/", "~")) or ".." in parts or ":" in parts[0] or path.strip() != path or not path:
        raise InvalidValue(
            node,
            f"{key.name} must be a path inside the project, not {describe(node)}",
            "copy the file into the project: mlw uploads only the project to the target",
        )
    return path


def _fetch(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    text = read_text(key, node, diagnostics).strip()
    if text.lower() in ("all", "none"):
        return text.lower()
    if not _SIZE.match(text):
        raise InvalidValue(node, f"{key.name} must be all, none, or a size such as 500 MB, not {describe(node)}")
    return text


def _gpus(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    text = read_text(key, node, diagnostics).strip()
    try:
        parse(text)
    except ValueError as error:
        raise InvalidValue(node, f"{key.name}: {error}", f"for example {EXAMPLES}") from None
    return text


def _count(key: Key, node: Node, diagnostics: Diagnostics) -> int:
    text = read_text(key, node, diagnostics)
    if not text.isascii() or not text.isdigit() or len(text) > 4 or int(text) > MAX_RETRIES:
        raise InvalidValue(node, f"{key.name} must be a number from 0 to {MAX_RETRIES}, not {describe(node)}")
    return int(text)


def _duration(key: Key, node: Node, diagnostics: Diagnostics) -> float:
    seconds = parse_duration(read_text(key, node, diagnostics))
    if seconds is None:
        raise InvalidValue(node, f"{key.name} must be a duration such as 10s or 5m, not {describe(node)}")
    return seconds


def _processes(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    text = read_text(key, node, diagnostics).strip()
    try:
        return parse_process_count(text)
    except ValueError as error:
        raise InvalidValue(node, f"{key.name}: {error}") from None


def _port(key: Key, node: Node, diagnostics: Diagnostics) -> int:
    text = read_text(key, node, diagnostics)
    # Longer strings are not ports, and int() raises for thousands of digits.
    if not text.isascii() or not text.isdigit() or len(text) > 5 or not 0 < int(text) < 65536:
        raise InvalidValue(node, f"{key.name} must be a number from 1 to 65535, not {describe(node)}")
    return int(text)


def _amount(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    """Read a number of bytes in Docker's notation."""
    text = read_text(key, node, diagnostics).strip().lower().removesuffix("b")
    if not _AMOUNT.match(text):
        raise InvalidValue(node, f"{key.name} must be an amount of memory such as 512m or 8g, not {describe(node)}")
    return text


def _number(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    text = read_text(key, node, diagnostics).strip()
    if not _NUMBER.match(text) or not float(text) > 0:
        raise InvalidValue(node, f"{key.name} must be a number such as 2 or 2.5, not {describe(node)}")
    return text


def _time_limit(key: Key, node: Node, diagnostics: Diagnostics) -> str:
    text = read_text(key, node, diagnostics).strip()
    if parse_time_limit(text) is None:
        raise InvalidValue(node, f"{key.name} must be a time limit of Slurm, not {describe(node)}", TIME_EXAMPLES)
    return text


SCALAR_READERS: dict[str, Callable[[Key, Node, Diagnostics], Any]] = {
    "text": read_text,
    "word": _word,
    "secret": _secret,
    "flag": _flag,
    "choice": _choice,
    "name": _name,
    "inside": read_inside,
    "fetch": _fetch,
    "gpus": _gpus,
    "count": _count,
    "duration": _duration,
    "processes": _processes,
    "port": _port,
    "amount": _amount,
    "number": _number,
    "time_limit": _time_limit,
}
