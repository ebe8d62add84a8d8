"""Check that dataclasses read from files match their declared types, to reject damaged files."""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass
from typing import Any

_LARGEST = 2**63
_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "None": (type(None),), "JsonDict": (dict,),
    "Mapping": (dict,), "tuple": (tuple,), "Path": (),
}  # fmt: skip


Checks = tuple[tuple[str, tuple[type, ...], str, bool], ...]
_known: dict[Any, Checks] = {}


def has_valid_types(value: Any) -> bool:
    """Return whether all fields, including those of nested dataclasses, have their declared types.

    Numbers must also be finite and below 2**63.
    """
    return all(_fits(getattr(value, name), kinds, of, free) for name, kinds, of, free in _fields(type(value)))


def _fits(value: Any, kinds: tuple[type, ...], of: str, is_any: bool) -> bool:
    if is_any:
        return True
    if type(value) not in kinds:
        return False
    if of == "str":
        return all(type(item) is str for item in (value.values() if isinstance(value, dict) else value))
    if type(value) in (int, float):
        return bool(-_LARGEST < value < _LARGEST)  # NaN is outside any range
    if type(value) is tuple:
        return all(has_valid_types(item) for item in value if is_dataclass(item))
    return not is_dataclass(value) or has_valid_types(value)


def _fields(kind: Any) -> Checks:
    """Return each field's name, types, item type (``str`` or ""), and whether any value is valid."""
    if kind in _known:
        return _known[kind]
    module = vars(sys.modules[kind.__module__])
    rows = []
    for field in fields(kind):
        names = [part.strip() for part in str(field.type).split(" | ")]
        kinds = tuple(one for name in names for one in _types(name.partition("[")[0], module))
        texts = any(name in ("tuple[str, ...]", "Mapping[str, str]") for name in names) and len(names) == 1
        rows.append((field.name, kinds, "str" if texts else "", not kinds))
    _known[kind] = tuple(rows)
    return _known[kind]


def _types(name: str, module: dict[str, Any]) -> tuple[type, ...]:
    if name in _KINDS:
        return _KINDS[name]
    defined = module.get(name)
    return (defined,) if isinstance(defined, type) and is_dataclass(defined) else ()
