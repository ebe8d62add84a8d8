"""Turns the tree of a file into values, by the table in ``keys``. Collects all problems of a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from .keys import COMPUTE, RUNCONFIG, Key, nearest, same_key
from .notes import Notes, Wrong
from .readers import READERS
from .yamlfile import Mapping, Node, Scalar


@dataclass(frozen=True)
class Place:
    """Where a key stands: its name as it was written, with the names above it, and its value."""

    name: str
    line: int
    node: Node

    @property
    def null(self) -> bool:
        return isinstance(self.node, Scalar) and self.node.null


class Fields:
    """The known keys of one file: where they stand, and their values once asked for."""

    def __init__(self, table: Iterable[Key], notes: Notes) -> None:
        self.table = tuple(table)
        self.notes = notes
        self.places: dict[str, Place] = {}  # by the key's name in the table
        self._named = {same_key(name): key for key in self.table for name in (key.name, *key.was)}

    def fill(self, mapping: Mapping) -> Fields:
        """Takes in all keys of a file, the unknown ones as problems."""
        for key, node in mapping.pairs:
            name = self.known(key.text)
            if name is None:
                stranger(key, [known.name for known in self.table], self.notes)
            else:
                self.put(name, Place(key.text, key.line, node))
        return self

    def known(self, word: str) -> str | None:
        """Name in the table of a key that may be written in an old way."""
        key = self._named.get(same_key(word))
        return key.name if key else None

    def put(self, name: str, place: Place) -> None:
        """Takes in one key. Of two spellings of it only one may say something."""
        first = self.places.get(name)
        if first is None:
            self.places[name] = place
        elif same_key(first.name) == same_key(place.name):
            self.notes.error(place.line, f"duplicate key {name!r}; it is first defined on line {first.line}")
        elif first.null:
            self.places[name] = place
        elif not place.null:
            self.notes.error(
                place.line, f"{place.name} duplicates {first.name} on line {first.line}", "remove one of them"
            )

    def given(self, name: str) -> bool:
        """Whether the file says anything for a key; null is as good as nothing."""
        place = self.places.get(name)
        return place is not None and not place.null

    def line(self, name: str) -> int | None:
        place = self.places.get(name)
        return place.line if place else None

    def read(self, name: str) -> Any:
        """Value of one key; None if the file says nothing, or something wrong, which is noted."""
        if not self.given(name):
            return None
        key, place = self._named[same_key(name)], self.places[name]
        if same_key(place.name) != same_key(name):
            key = replace(key, name=place.name)  # so that messages name what the file names
        try:
            return READERS[key.kind](key, place.node, self.notes)
        except Wrong as wrong:
            self.notes.error(wrong.line, wrong.message, wrong.hint)
            return None

    def values(self) -> dict[str, Any]:
        """Value of each field that the file sets. A wrong value is noted and left out."""
        values = {}
        for key in self.table:
            if not self.given(key.name):
                continue
            if key.field is None:
                if key.kind == "retired":
                    self.no_effect(key.name)
                continue
            place = self.places[key.name]
            if same_key(place.name) in {same_key(old) for old in key.was}:
                self.notes.warn(place.line, f"{place.name} is the old name of {key.name}", f"use {key.name} instead")
            value = self.read(key.name)
            if value is not None:
                values[key.field] = value
        return values

    def no_effect(self, name: str) -> None:
        key, place = self._named[same_key(name)], self.places[name]
        self.notes.warn(place.line, f"{place.name} has no effect", f"use {key.instead} instead")


def stranger(key: Scalar, known: Iterable[str], notes: Notes, above: str = "") -> None:
    """Notes an unknown key: an error if it is close to a known one, for then it was meant to do something."""
    near = nearest(key.text, known)
    if near:
        notes.error(key.line, f"unknown key {above + key.text!r}", f"did you mean {above + near!r}?")
        return
    hint = None
    for table, kind in ((COMPUTE, ".compute"), (RUNCONFIG, ".runconfig")):
        if same_key(key.text) in {same_key(one.name) for one in table}:
            hint = f"{key.text} belongs in a {kind} file"
    notes.warn(key.line, f"unknown key {above + key.text!r} has no effect", hint)
