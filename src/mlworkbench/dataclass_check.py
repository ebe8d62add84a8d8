"""Whether a dataclass that was made from a file holds what its types promise: a damaged file must not get further."""

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


def is_sound(value: Any) -> bool:
    """Each field has the kind of value that its type names, at any depth of dataclasses; no number is absurd."""
    return all(_fits(getattr(value, name), kinds, of, free) for name, kinds, of, free in _fields(type(value)))


def _fits(value: Any, kinds: tuple[type, ...], of: str, is_any: bool) -> bool:
    if is_any:
        return True
    if type(value) not in kinds:
        return False
    if of == "str":
        return all(type(one) is str for one in (value.values() if isinstance(value, dict) else value))
    if type(value) in (int, float):
        return bool(-_LARGEST < value < _LARGEST)  # NaN is in no range
    if type(value) is tuple:
        return all(is_sound(one) for one in value if is_dataclass(one))
    return not is_dataclass(value) or is_sound(value)


def _fields(kind: Any) -> Checks:
    """Name, types that a value may have, ``str`` where it holds texts only, and whether anything goes."""
    if kind in _known:
        return _known[kind]
    module = vars(sys.modules[kind.__module__])
    found = []
    for field in fields(kind):
        names = [part.strip() for part in str(field.type).split(" | ")]
        kinds = tuple(one for name in names for one in _types(name.partition("[")[0], module))
        texts = any(name in ("tuple[str, ...]", "Mapping[str, str]") for name in names) and len(names) == 1
        found.append((field.name, kinds, "str" if texts else "", not kinds))
    _known[kind] = tuple(found)
    return _known[kind]


def _types(name: str, module: dict[str, Any]) -> tuple[type, ...]:
    if name in _KINDS:
        return _KINDS[name]
    known = module.get(name)
    return (known,) if isinstance(known, type) and is_dataclass(known) else ()
