"""Turns the tree of a file into values, by the table in ``keys``. Collects all problems of a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..errors import ConfigError
from ..model import Problem
from .keys import COMPUTE, RUNCONFIG, SAME_TYPE, Key, nearest, same_key
from .yamlfile import Mapping, Node, Scalar, Sequence, describe, plain

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SIZE = re.compile(r"\d+(\.\d+)?\s*([KMGT]i?)?B?\Z", re.IGNORECASE)
_TRUE = ("true", "yes", "on")
_FALSE = ("false", "no", "off")
SECRET_POINTER = "AzureMlSecret="


class Wrong(Exception):
    """A value that cannot be used, at a line of the file being read."""

    def __init__(self, node: Node, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.line = node.line
        self.message = message
        self.hint = hint


class Notes:
    """The problems of one file, in the order they were found."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.problems: list[Problem] = []

    def error(self, line: int | None, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(self.shown, line, "error", message, hint))

    def warn(self, line: int | None, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(self.shown, line, "warning", message, hint))

    def raise_first(self) -> None:
        for problem in self.problems:
            if problem.severity == "error":
                raise ConfigError(problem.message, problem.hint, path=problem.path, line=problem.line)


def is_plain_name(name: str) -> bool:
    """Whether a name can be the stem of a file in aml_config and leads nowhere else."""
    return (
        0 < len(name) <= 200
        and name[0] not in "-."
        and name.isprintable()
        and not any(sign in name for sign in '/\\:*?"<>|')
        and name == name.strip()
    )


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
            self.notes.error(place.line, f"the key {name!r} is there twice; the first is on line {first.line}")
        elif first.null:
            self.places[name] = place
        elif not place.null:
            self.notes.error(
                place.line, f"{place.name} says the same as {first.name} on line {first.line}", "remove one of them"
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
            return _READERS[key.kind](key, place.node, self.notes)
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
                self.notes.warn(place.line, f"{place.name} is the old name of {key.name}", f"write {key.name} instead")
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
            hint = f"it is a key of the {kind} file"
    notes.warn(key.line, f"unknown key {above + key.text!r} has no effect", hint)


# -- one reader per kind ---------------------------------------------------------------------------


def _text(key: Key, node: Node, notes: Notes) -> str:
    if not isinstance(node, Scalar):
        raise Wrong(node, f"{key.name} must be a text, not {describe(node)}")
    if not node.text.strip() or not node.text.isprintable():
        raise Wrong(node, f"{key.name} is empty or contains a line end or control character")
    return node.text


def _word(key: Key, node: Node, notes: Notes) -> str:
    """A text that becomes one argument of a program; a leading dash would make it an option there."""
    text = _text(key, node, notes)
    if text.startswith("-") or " " in text:
        raise Wrong(node, f"{key.name} must be one word without a dash in front, not {describe(node)}")
    return text


def _secret(key: Key, node: Node, notes: Notes) -> str | None:
    if not isinstance(node, Scalar):
        raise Wrong(node, f"{key.name} must be a text, not {describe(node)}")
    if node.text.startswith(SECRET_POINTER):
        return node.text
    notes.warn(
        node.line,
        f"{key.name} holds a secret in a file that is copied around with the project",
        "remove the line and change the password; `mlw computetarget attach` needs it only once",
    )
    return None  # so that it can get no further


def _flag(key: Key, node: Node, notes: Notes) -> bool:
    word = node.text.lower() if isinstance(node, Scalar) else ""
    if word not in _TRUE + _FALSE:
        raise Wrong(node, f"{key.name} must be true or false, not {describe(node)}")
    return word in _TRUE


def _choice(key: Key, node: Node, notes: Notes) -> str:
    text = _text(key, node, notes)
    spelled = {choice.lower(): choice for choice in key.choices}
    if key.field == "type":
        spelled |= SAME_TYPE
    if text.lower() in spelled:
        return spelled[text.lower()]
    near = nearest(text, key.choices)
    hint = f"did you mean {near!r}?" if near else None
    message = f"{key.name} must be one of {', '.join(key.choices)}, not {describe(node)}"
    if near or not key.open:
        raise Wrong(node, message, hint)
    notes.warn(
        node.line,
        f"{key.name} {text!r} is none of the built-in ones: {', '.join(key.choices)}",
        "it needs a plugin of that name",
    )
    return text


def _name(key: Key, node: Node, notes: Notes) -> str:
    text = _text(key, node, notes)
    if not is_plain_name(text):
        raise Wrong(
            node,
            f"{key.name} must be the name of a .compute file, not {describe(node)}",
            "write the name without folder and extension",
        )
    return text


def _inside(key: Key, node: Node, notes: Notes) -> str:
    # The original also ran on Windows, whose users write backslashes.
    path = _text(key, node, notes).replace("\\", "/")
    parts = path.split("/")
    if path.startswith(("/", "~")) or ".." in parts or ":" in parts[0] or path.strip() != path or not path:
        raise Wrong(
            node,
            f"{key.name} must be a path inside the project, not {describe(node)}",
            "copy the file into the project: only the project travels to the target",
        )
    return path


def _fetch(key: Key, node: Node, notes: Notes) -> str:
    text = _text(key, node, notes).strip()
    if text.lower() in ("all", "none"):
        return text.lower()
    if not _SIZE.match(text):
        raise Wrong(node, f"{key.name} must be all, none or a size such as 500 MB, not {describe(node)}")
    return text


def _items(key: Key, node: Node) -> tuple[Node, ...]:
    if not isinstance(node, Sequence):
        raise Wrong(node, f"{key.name} must be a list, not {describe(node)}", "write one `- item` per line below it")
    return node.items


def _texts(key: Key, node: Node, notes: Notes) -> tuple[str, ...]:
    for item in _items(key, node):
        if not isinstance(item, Scalar):
            raise Wrong(
                item,
                f"an item of {key.name} must be a text, not {describe(item)}",
                "put an item that contains ': ' in quotes",
            )
        if item.text == "" and not item.style:
            raise Wrong(item, f"an item of {key.name} is empty", 'write "" if that is what you mean')
    return tuple(item.text for item in _items(key, node) if isinstance(item, Scalar))


def _arguments(key: Key, node: Node, notes: Notes) -> tuple[str, ...]:
    if isinstance(node, Scalar):
        raise Wrong(
            node,
            f"{key.name} must be a list, not {describe(node)}",
            "write each argument as an item: [train.py, --lr, 0.1]",
        )
    return _texts(key, node, notes)


def _pairs(key: Key, node: Node) -> tuple[tuple[Scalar, Node], ...]:
    if not isinstance(node, Mapping):
        raise Wrong(
            node,
            f"{key.name} must be a mapping of names to values, not {describe(node)}",
            "write one `NAME: value` per line below it",
        )
    return node.pairs


def _texts_by_name(key: Key, node: Node, notes: Notes) -> dict[str, str]:
    texts = {}
    for name, value in _pairs(key, node):
        if not isinstance(value, Scalar):
            raise Wrong(value, f"{name.text} in {key.name} must be a text, not {describe(value)}")
        texts[name.text] = value.text
    return texts


def _variables(key: Key, node: Node, notes: Notes) -> dict[str, str]:
    for name, value in _pairs(key, node):
        if not _VARIABLE.match(name.text):
            raise Wrong(
                name,
                f"{name.text!r} in {key.name} is not a name for an environment variable",
                "use letters, digits and _, and no digit first",
            )
        # An empty value is an empty text; but who writes null may mean the word, or no variable at all.
        if isinstance(value, Scalar) and value.null and value.text:
            raise Wrong(
                value,
                f"{name.text} in {key.name} is null",
                f'write "{value.text}" for that word, "" for an empty text, or remove the line',
            )
    return _texts_by_name(key, node, notes)


def _tree(key: Key, node: Node, notes: Notes) -> dict[str, Any]:
    return {name.text: plain(value) for name, value in _pairs(key, node)}


def _packages(key: Key, node: Node, notes: Notes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Conda's packages and pip's: the only mapping among the items is {pip: [...]}."""
    conda: list[str] = []
    pip: list[str] = []
    for item in _items(key, node):
        if isinstance(item, Scalar) and item.text:
            conda.append(item.text)
        elif isinstance(item, Mapping):
            pip.extend(_pip(item, notes))
        else:
            raise Wrong(item, f"an item of {key.name} must be a package, not {describe(item)}")
    return tuple(conda), tuple(pip)


def _pip(item: Mapping, notes: Notes) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    for name, value in item.pairs:
        if name.text != "pip":
            raise Wrong(
                name,
                f"{name.text!r} is neither a package nor the list of pip's packages",
                "write `- pip:` and pip's packages as a list below it, or remove the colon",
            )
        if not (isinstance(value, Scalar) and value.null):
            found = _texts(Key("pip", "texts", ""), value, notes)
    return found


def _coordinates(key: Key, node: Node, notes: Notes) -> tuple[str, ...]:
    return tuple(_coordinate(item) for item in _items(key, node))


def _coordinate(item: Node) -> str:
    """group:artifact:version, from a mapping of the three or from a text that is one already."""
    hint = "write group, artifact and version of a Maven package"
    if isinstance(item, Scalar) and item.text.count(":") == 2:
        return item.text
    if not isinstance(item, Mapping):
        raise Wrong(item, f"an item of packages must be a Maven package, not {describe(item)}", hint)
    parts = {name.text: value for name, value in item.pairs}
    words = []
    for part in ("group", "artifact", "version"):
        value = parts.get(part)
        if not isinstance(value, Scalar) or value.null:
            raise Wrong(item, f"a Maven package has no {part}", hint)
        words.append(value.text)
    return ":".join(words)


_READERS: dict[str, Callable[[Key, Node, Notes], Any]] = {
    "text": _text,
    "word": _word,
    "secret": _secret,
    "flag": _flag,
    "choice": _choice,
    "name": _name,
    "inside": _inside,
    "fetch": _fetch,
    "texts": _texts,
    "arguments": _arguments,
    "texts_by_name": _texts_by_name,
    "variables": _variables,
    "tree": _tree,
    "packages": _packages,
    "coordinates": _coordinates,
}
