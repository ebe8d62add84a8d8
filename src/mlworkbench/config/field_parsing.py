"""Convert a parsed file to values, as defined by the table in ``keys``, and collect all problems."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from .config_problems import Diagnostics, InvalidValue
from .keys import COMPUTE, RUNCONFIG, Key, closest_match, normalize_key
from .value_readers import READERS
from .yaml_tree import Mapping, Node, Scalar


@dataclass(frozen=True)
class KeyEntry:
    """Occurrence of a key: its name as written, with parent keys, its line, and its value."""

    name: str
    line: int
    node: Node

    @property
    def is_null(self) -> bool:
        return isinstance(self.node, Scalar) and self.node.is_null


class Fields:
    """Recognized keys of a file. Values are parsed on request."""

    def __init__(self, table: Iterable[Key], diagnostics: Diagnostics) -> None:
        self.table = tuple(table)
        self.diagnostics = diagnostics
        self.entries: dict[str, KeyEntry] = {}  # by key name in the table
        self._keys_by_name = {normalize_key(name): key for key in self.table for name in (key.name, *key.former_names)}

    def add_all(self, mapping: Mapping) -> Fields:
        """Add all keys of a file and report unknown ones."""
        for key, node in mapping.pairs:
            name = self.canonical_name(key.text)
            if name is None:
                report_unknown_key(key, [known.name for known in self.table], self.diagnostics)
            else:
                self.add(name, KeyEntry(key.text, key.line, node))
        return self

    def canonical_name(self, name: str) -> str | None:
        """Return the table name of a key, which may be an old name, or None if it is unknown."""
        key = self._keys_by_name.get(normalize_key(name))
        return key.name if key else None

    def add(self, name: str, entry: KeyEntry) -> None:
        """Add a key. If it occurs under two names, only one of them may have a value."""
        first = self.entries.get(name)
        if first is None:
            self.entries[name] = entry
        elif normalize_key(first.name) == normalize_key(entry.name):
            self.diagnostics.error(entry.line, f"duplicate key {name!r}; it is first defined on line {first.line}")
        elif first.is_null:
            self.entries[name] = entry
        elif not entry.is_null:
            self.diagnostics.error(
                entry.line, f"{entry.name} duplicates {first.name} on line {first.line}", "remove one of them"
            )

    def is_set(self, name: str) -> bool:
        """Return whether the file sets a key to a value other than null."""
        entry = self.entries.get(name)
        return entry is not None and not entry.is_null

    def line(self, name: str) -> int | None:
        entry = self.entries.get(name)
        return entry.line if entry else None

    def read(self, name: str) -> Any:
        """Return the value of a key, or None if it is not set or invalid. Report invalid values."""
        if not self.is_set(name):
            return None
        key, entry = self._keys_by_name[normalize_key(name)], self.entries[name]
        if normalize_key(entry.name) != normalize_key(name):
            key = replace(key, name=entry.name)  # messages use the name from the file
        try:
            return READERS[key.kind](key, entry.node, self.diagnostics)
        except InvalidValue as error:
            self.diagnostics.error(error.line, error.message, error.hint)
            return None

    def values(self) -> dict[str, Any]:
        """Return the value of each field that the file sets. Invalid values are reported and omitted."""
        values = {}
        for key in self.table:
            if not self.is_set(key.name):
                continue
            if key.field is None:
                if key.kind == "retired":
                    self.warn_no_effect(key.name)
                continue
            entry = self.entries[key.name]
            if normalize_key(entry.name) in {normalize_key(old) for old in key.former_names}:
                self.diagnostics.warn(
                    entry.line, f"{entry.name} is the old name of {key.name}", f"use {key.name} instead"
                )
            value = self.read(key.name)
            if value is not None:
                values[key.field] = value
        return values

    def warn_no_effect(self, name: str) -> None:
        key, entry = self._keys_by_name[normalize_key(name)], self.entries[name]
        self.diagnostics.warn(entry.line, f"{entry.name} has no effect", f"use {key.replacement} instead")


def report_unknown_key(key: Scalar, known: Iterable[str], diagnostics: Diagnostics, prefix: str = "") -> None:
    """Report an unknown key: an error if it resembles a known key (a likely typo), else a warning."""
    suggestion = closest_match(key.text, known)
    if suggestion:
        diagnostics.error(key.line, f"unknown key {prefix + key.text!r}", f"did you mean {prefix + suggestion!r}?")
        return
    hint = None
    for table, kind in ((COMPUTE, ".compute"), (RUNCONFIG, ".runconfig")):
        if normalize_key(key.text) in {normalize_key(known_key.name) for known_key in table}:
            hint = f"{key.text} belongs in a {kind} file"
    diagnostics.warn(key.line, f"unknown key {prefix + key.text!r} has no effect", hint)
