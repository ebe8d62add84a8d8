"""Definition of a configuration key: type, default, and one sentence of documentation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Key:
    """Key of a kind of file. ``kind`` selects the reader in ``config.value_readers``."""

    name: str
    kind: str
    doc: str
    # Field of the value in model.py. None for keys of a plugin's compute type, which are stored in Compute.settings,
    # and for obsolete keys, which are accepted without effect.
    field: str | None = None
    default: object = None
    required: bool = False  # in compute types that list this key
    choices: tuple[str, ...] = ()
    open: bool = False  # values other than `choices` are also allowed
    plugins: str = ""  # plugin group in ``registry`` that provides the other values; empty if any value is allowed
    replacement: str | None = None  # replacement for an obsolete key
    former_names: tuple[str, ...] = ()  # former names
    nested_paths: tuple[str, ...] = ()  # paths in April 2018 run configurations
