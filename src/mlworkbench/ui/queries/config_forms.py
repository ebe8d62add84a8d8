"""Forms for ``.compute`` and ``.runconfig`` files: one field per key. Edits preserve comments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...config.file_editor import apply_changes
from ...config.keys import COMPUTE, RUNCONFIG, TYPE_ALIASES, Key, normalize_key
from ...config.project_files import COMPUTE_SUFFIX, RUNCONFIG_SUFFIX
from ...config.yaml_tree import Mapping, parse, to_python
from ...errors import ConfigError, UsageError
from ...targets.types import ComputeType, find_type

_TABLES = {COMPUTE_SUFFIX: COMPUTE, RUNCONFIG_SUFFIX: RUNCONFIG}
_LISTS = ("texts", "arguments", "sbatch_options", "variable_names", "kept_paths")
_MAPPINGS = ("texts_by_name", "goals", "variables")
_NUMBERS = ("port", "number", "gpus", "processes")
_NOT_IN_FORM = ("tree", "packages", "coordinates", "secret")


@dataclass(frozen=True)
class Field:
    """Form field for a key: its meaning and its current value."""

    name: str
    kind: str  # flag, choice, lines, pairs, text
    help: str
    value: str  # as shown in the form; "" if the text does not set it
    default: str
    choices: tuple[str, ...] = ()
    required: bool = False


@dataclass(frozen=True)
class Form:
    """Form with all fields that have an effect.

    ``trouble`` explains why the text cannot be shown as a form.
    """

    fields: tuple[Field, ...] = ()
    trouble: str = ""


def has_form(path: str) -> bool:
    return path.startswith("aml_config/") and path.count("/") == 1 and path.endswith(tuple(_TABLES))


def build_form(path: str, text: str) -> Form:
    """Parse the text into form fields."""
    try:
        mapping = parse(text.encode("utf-8", "surrogatepass"), path)
    except ConfigError:
        return Form(trouble="Fix the errors in the text to use the form.")
    if mapping.flow:
        return Form(trouble="This file uses YAML flow style ({…}) and can be edited only as text.")
    values = _values(mapping)
    compute_type = _compute_type(values)
    fields = [
        _field(key, compute_type, values)
        for key in _known_keys(path, compute_type)
        if _is_shown(path, key, compute_type, values)
    ]
    return Form(tuple(fields))


def apply_field(path: str, text: str, name: str, text_value: str) -> str:
    """Return the text with a key set to the form's value, or removed if the value is "".

    Everything else is unchanged.
    """
    try:
        mapping = parse(text.encode("utf-8", "surrogatepass"), path)
        key = next(
            known_key for known_key in _known_keys(path, _compute_type(_values(mapping))) if known_key.name == name
        )
        written = next((pair.text for pair, _ in mapping.pairs if _matches_key(key, pair.text)), name)
        return apply_changes(
            text.encode("utf-8", "surrogatepass"), path, {written: _parse_value(key, text_value)}
        ).decode()
    except UnicodeError:
        raise UsageError("the text contains a character that cannot be saved") from None


def _known_keys(path: str, compute_type: ComputeType | None) -> tuple[Key, ...]:
    table = next(table for suffix, table in _TABLES.items() if path.endswith(suffix))
    return (*table, *compute_type.own_keys) if compute_type and path.endswith(COMPUTE_SUFFIX) else table


def _compute_type(values: dict[str, Any]) -> ComputeType | None:
    """Return the compute type that a ``.compute`` file specifies, if it is installed."""
    name = str(values.get("type") or "")
    return find_type(TYPE_ALIASES.get(name, name))


def _values(mapping: Mapping) -> dict[str, Any]:
    return {normalize_key(key.text): to_python(node) for key, node in mapping.pairs}


def _matches_key(key: Key, written: str) -> bool:
    return normalize_key(written) in {normalize_key(name) for name in (key.name, *key.former_names)}


def _current_value(key: Key, values: dict[str, Any]) -> Any:
    return next(
        (
            values[normalize_key(name)]
            for name in (key.name, *key.former_names)
            if values.get(normalize_key(name)) is not None
        ),
        None,
    )


def _is_shown(path: str, key: Key, compute_type: ComputeType | None, values: dict[str, Any]) -> bool:
    """Return whether to show a key: it has an effect for this compute type, or the text sets it."""
    if key.kind in _NOT_IN_FORM:
        return False
    if not path.endswith(COMPUTE_SUFFIX):
        return key.field is not None
    if key.field is None:  # an obsolete key, or a key of one compute type
        return compute_type is not None and compute_type.has_key(key)
    shown = compute_type.has_key(key) if compute_type else key.field == "type"
    return shown or _current_value(key, values) is not None


def _field(key: Key, compute_type: ComputeType | None, values: dict[str, Any]) -> Field:
    value, default = _current_value(key, values), key.default
    shape = {"flag": "flag", "choice": "choice"}.get(key.kind)
    shape = shape or ("lines" if key.kind in _LISTS else "pairs" if key.kind in _MAPPINGS else "text")
    return Field(
        key.name,
        shape,
        key.doc,
        _format_value(value),
        "" if default is None else _format_value(default),
        key.choices if key.kind == "choice" else ("true", "false") if shape == "flag" else (),
        compute_type is not None and compute_type.requires(key),
    )


def _format_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "\n".join(_format_value(item) for item in value)
    if isinstance(value, dict):
        return "\n".join(f"{name}: {_format_value(item)}" for name, item in value.items())
    return str(value)


def _parse_value(key: Key, shown: str) -> object:
    """Convert the form's value for the file.

    Invalid values are reported, with their line, when the text is checked.
    """
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    if not lines:
        return None
    if key.kind in _LISTS:
        return lines
    if key.kind in _MAPPINGS:
        pairs = [line.partition(":") if ":" in line else line.partition("=") for line in lines]
        return {name.strip(): value.strip() for name, _, value in pairs}
    text = " ".join(lines)
    if key.kind == "flag" and text in ("true", "false"):
        return text == "true"
    if key.kind in _NUMBERS and text.isascii() and text.isdecimal() and str(int(text)) == text:
        return int(text)
    return text
