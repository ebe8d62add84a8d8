"""A ``.compute`` or ``.runconfig`` as a form: a field for each key, from and into the text, whose comments stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...config.keys import COMPUTE, RUNCONFIG, SAME_TYPE, Key, same_key
from ...config.place import COMPUTE_SUFFIX, RUNCONFIG_SUFFIX
from ...config.rewrite import rewritten
from ...config.yamlfile import Mapping, parse, plain
from ...errors import ConfigError, UsageError
from ...targets.types import ComputeType, find_type

_TABLES = {COMPUTE_SUFFIX: COMPUTE, RUNCONFIG_SUFFIX: RUNCONFIG}
_LISTS = ("texts", "arguments")
_BY_NAME = ("texts_by_name", "variables")
_NUMBERS = ("port", "number", "gpus")
_ONLY_TEXT = ("tree", "packages", "coordinates", "secret")


@dataclass(frozen=True)
class Field:
    """One key: what it means, and what the text says of it."""

    name: str
    kind: str  # flag, choice, lines, pairs, text
    help: str
    value: str  # as the form shows it; "" if the text does not say it
    default: str
    choices: tuple[str, ...] = ()
    required: bool = False


@dataclass(frozen=True)
class Form:
    """All fields that have an effect; ``trouble`` if the text cannot be one."""

    fields: tuple[Field, ...] = ()
    trouble: str = ""


def has_form(path: str) -> bool:
    return path.startswith("aml_config/") and path.count("/") == 1 and path.endswith(tuple(_TABLES))


def form(path: str, text: str) -> Form:
    """What the text says, field by field."""
    try:
        mapping = parse(text.encode("utf-8", "surrogatepass"), path)
    except ConfigError:
        return Form(trouble="Fix the errors in the text to use the form.")
    if mapping.flow:
        return Form(trouble="This file uses YAML flow style ({…}) and can be edited only as text.")
    values = _values(mapping)
    row = _row(values)
    fields = [_field(key, row, values) for key in _table(path, row) if _is_shown(path, key, row, values)]
    return Form(tuple(fields))


def filled(path: str, text: str, name: str, shown: str) -> str:
    """The text with one key as the form has it; "" takes the key away. All other bytes stay."""
    try:
        mapping = parse(text.encode("utf-8", "surrogatepass"), path)
        key = next(one for one in _table(path, _row(_values(mapping))) if one.name == name)
        written = next((pair.text for pair, _ in mapping.pairs if _is_named(key, pair.text)), name)
        return rewritten(text.encode("utf-8", "surrogatepass"), path, {written: _value(key, shown)}).decode()
    except UnicodeError:
        raise UsageError("the text contains a character that cannot be saved") from None


def _table(path: str, row: ComputeType | None) -> tuple[Key, ...]:
    table = next(table for suffix, table in _TABLES.items() if path.endswith(suffix))
    return (*table, *row.own_keys) if row and path.endswith(COMPUTE_SUFFIX) else table


def _row(values: dict[str, Any]) -> ComputeType | None:
    """The compute type that a .compute file names, if it is installed."""
    name = str(values.get("type") or "")
    return find_type(SAME_TYPE.get(name, name))


def _values(mapping: Mapping) -> dict[str, Any]:
    return {same_key(key.text): plain(node) for key, node in mapping.pairs}


def _is_named(key: Key, written: str) -> bool:
    return same_key(written) in {same_key(name) for name in (key.name, *key.was)}


def _said(key: Key, values: dict[str, Any]) -> Any:
    return next(
        (values[same_key(name)] for name in (key.name, *key.was) if values.get(same_key(name)) is not None), None
    )


def _is_shown(path: str, key: Key, row: ComputeType | None, values: dict[str, Any]) -> bool:
    """What has an effect on this type, and what the text says anyhow."""
    if key.kind in _ONLY_TEXT:
        return False
    if not path.endswith(COMPUTE_SUFFIX):
        return key.field is not None
    if key.field is None:  # an old key, or one that only this type has
        return row is not None and row.has_key(key)
    shown = row.has_key(key) if row else key.field == "type"
    return shown or _said(key, values) is not None


def _field(key: Key, row: ComputeType | None, values: dict[str, Any]) -> Field:
    value, default = _said(key, values), key.default
    shape = {"flag": "flag", "choice": "choice"}.get(key.kind)
    shape = shape or ("lines" if key.kind in _LISTS else "pairs" if key.kind in _BY_NAME else "text")
    return Field(
        key.name,
        shape,
        key.doc,
        _shown(value),
        "" if default is None else _shown(default),
        key.choices if key.kind == "choice" else ("true", "false") if shape == "flag" else (),
        row is not None and row.requires(key),
    )


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "\n".join(_shown(one) for one in value)
    if isinstance(value, dict):
        return "\n".join(f"{name}: {_shown(one)}" for name, one in value.items())
    return str(value)


def _value(key: Key, shown: str) -> object:
    """What goes into the file; what it must not be is said by the check of the text, at its line."""
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    if not lines:
        return None
    if key.kind in _LISTS:
        return lines
    if key.kind in _BY_NAME:
        pairs = [line.partition(":") if ":" in line else line.partition("=") for line in lines]
        return {name.strip(): value.strip() for name, _, value in pairs}
    text = " ".join(lines)
    if key.kind == "flag" and text in ("true", "false"):
        return text == "true"
    if key.kind in _NUMBERS and text.isascii() and text.isdecimal() and str(int(text)) == text:
        return int(text)
    return text
