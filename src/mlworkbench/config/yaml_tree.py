"""Parse a YAML or JSON file into a tree of uninterpreted values with their positions.

A project may be untrusted. Files that are huge, recursive, expanding, or ambiguous, or that would
construct objects, are rejected with their path and line.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ..errors import ConfigError
from .project_files import is_outside

MAX_BYTES = 1 << 20
COPY_HINT = "copy the file into the project: mlw uploads only the project to the target"
MAX_NODES = 10_000
MAX_DEPTH = 50

INVALID_YAML = "invalid-yaml"  # error code for text that is not a mapping of keys to values
_TAG = "tag:yaml.org,2002:"
_TAGS = {None, "!", *(_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq"))}
_NULLS = ("", "~", "null", "Null", "NULL")

# The C parser is about ten times faster, but PyYAML may have been built without it.
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Scalar:
    """A scalar as written. ``style`` is "" for a plain scalar, else its first character: ' " | >"""

    text: str
    style: str
    line: int
    start: int
    end: int

    @property
    def is_null(self) -> bool:
        return not self.style and self.text in _NULLS


@dataclass(frozen=True)
class Sequence:
    """A list. ``flow`` is true if it is written in brackets."""

    items: tuple[Node, ...]
    flow: bool
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Mapping:
    """A mapping with unique keys, in file order."""

    pairs: tuple[tuple[Scalar, Node], ...]
    flow: bool
    line: int
    start: int
    end: int


Node = Scalar | Sequence | Mapping


def load(path: Path) -> Mapping:
    """Load the mapping from a file. An empty file is an empty mapping."""
    filename = display_path(path)
    return parse(read_bytes(path, filename), filename)


def display_path(path: Path) -> str:
    """Return a path relative to the current folder if it is inside that folder."""
    text = str(path)
    try:
        current = os.getcwd() + os.sep
    except OSError:  # the current folder was deleted
        return text
    return text[len(current) :] if text.startswith(current) else text


def require_inside(path: Path, root: Path) -> None:
    """Raise ConfigError if a project file is a link to a file outside the project.

    Otherwise, a project could make mlw use any of the user's files.
    """
    if is_outside(path, root):
        raise ConfigError(outside_message(path.name, path), COPY_HINT, path=display_path(path))


def outside_message(name: str, path: Path) -> str:
    """Return the message for a file that is outside the project."""
    return f"{name} is outside the project, at {os.path.realpath(path)}"


def read_bytes(path: Path, filename: str) -> bytes:
    # Without O_NONBLOCK, opening a named pipe in a project would block forever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError("not a regular file", "replace it with a plain text file", path=filename)
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("the file does not exist", path=filename) from None
    except OSError as error:
        raise ConfigError(f"cannot read the file: {error.strerror}", path=filename) from None
    if len(data) > MAX_BYTES:
        raise ConfigError("the file is larger than 1 MiB", "keep data in separate files", path=filename)
    return data


def decode(data: bytes, filename: str) -> str:
    """Decode a file without its byte order mark. Line endings are kept."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8"
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            hint += "; it looks like UTF-16, as written by > in PowerShell"
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("the file is not UTF-8 text", hint, path=filename, line=line) from None


def parse(data: bytes, filename: str, loader: Any = Loader) -> Mapping:
    """Parse a file's bytes into a mapping. ``filename`` is the file's name in error messages."""
    text = decode(data, filename)
    try:
        return _Composer(loader(text), filename).document()
    except yaml.MarkedYAMLError as error:
        raise _to_config_error(error, text, filename) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError("the file contains a character that YAML does not allow", path=filename, line=line) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The Python parser raises the latter two for huge numbers in escapes and directives.
        raise ConfigError(f"not valid YAML: {error}", path=filename, code=INVALID_YAML) from None


class _Composer:
    """Builder that creates the tree from parser events, so that limits apply before allocation."""

    def __init__(self, loader: Any, filename: str) -> None:
        self.loader = loader
        self.filename = filename
        self.count = 0
        self.anchors: dict[str, tuple[Node, int] | None] = {}  # (node, its node count); None until complete

    def document(self) -> Mapping:
        events = self.loader
        events.get_event()  # start of the stream
        if events.check_event(yaml.StreamEndEvent):
            return Mapping((), False, 1, 0, 0)
        events.get_event()  # start of the document
        node = self.node(0)
        events.get_event()  # end of the document
        if not events.check_event(yaml.StreamEndEvent):
            line = events.peek_event().start_mark.line + 1
            self.refuse("the file contains more than one YAML document", line, "remove the line ---")
        if isinstance(node, Mapping):
            return node
        if isinstance(node, Scalar) and node.is_null:
            return Mapping((), False, node.line, node.end, node.end)
        what, hint, code = "a list", None, None
        if isinstance(node, Scalar):
            what, hint, code = "a single string", _colon_hint(node.text), INVALID_YAML
        message = f"the file must be a mapping of keys to values, not {what}"
        return self.refuse(message, node.line, hint or "write one `key: value` per line", code)

    def node(self, depth: int) -> Node:
        event = self.loader.get_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, line)
        before = self.count
        self.count_nodes(1, line)
        if depth > MAX_DEPTH:
            self.refuse(f"values are nested deeper than {MAX_DEPTH} levels", line)
        if event.tag not in _TAGS:
            tag = event.tag.replace(_TAG, "!!")
            self.refuse(f"YAML tag {tag!r} is not allowed", line, "remove it and use a plain value")
        if event.anchor:
            self.anchors[event.anchor] = None
        is_scalar = isinstance(event, yaml.ScalarEvent)
        node = self.scalar(event, line) if is_scalar else self.collection(event, depth)
        if event.anchor:
            self.anchors[event.anchor] = (node, self.count - before)
        return node

    def alias(self, event: Any, line: int) -> Node:
        anchor = event.anchor
        if anchor not in self.anchors:
            return self.refuse(f"undefined YAML alias *{anchor}", line)
        anchored = self.anchors[anchor]
        if anchored is None:
            return self.refuse(f"YAML alias *{anchor} refers to itself", line)
        self.count_nodes(anchored[1], line)
        position = {"line": line, "start": event.start_mark.index, "end": event.end_mark.index}
        if isinstance(anchored[0], Scalar):
            return replace(anchored[0], **position)
        return replace(anchored[0], flow=True, **position)  # an alias is on one line, whatever it refers to

    def count_nodes(self, nodes: int, line: int) -> None:
        self.count += nodes
        if self.count > MAX_NODES:
            message = f"the file contains more than {MAX_NODES:,} values, with aliases expanded"
            self.refuse(message, line, "shorten the file, or remove aliases")

    def scalar(self, event: Any, line: int) -> Scalar:
        text: str = event.value
        if "\0" in text or not _is_unicode(text):
            self.refuse("a value contains a NUL or an invalid Unicode character", line)
        style = event.style or ("" if event.tag is None else "!")
        return Scalar(text, style, line, event.start_mark.index, event.end_mark.index)

    def collection(self, event: Any, depth: int) -> Node:
        is_list = isinstance(event, yaml.SequenceStartEvent)
        children: list[Node] = []
        end_event = yaml.SequenceEndEvent if is_list else yaml.MappingEndEvent
        while not self.loader.check_event(end_event):
            children.append(self.node(depth + 1))
        end = self.loader.get_event().end_mark.index
        flow = bool(event.flow_style)
        line, start = event.start_mark.line + 1, event.start_mark.index
        # The parser ends a block where the next token begins, after any comments, so use the end of the last value.
        if not flow and children:
            end = max(start, children[-1].end)
        if is_list:
            return Sequence(tuple(children), flow, line, start, end)
        return Mapping(tuple(self.pairs(children)), flow, line, start, end)

    def pairs(self, children: list[Node]) -> Iterator[tuple[Scalar, Node]]:
        lines: dict[str, int] = {}
        for key, value in zip(children[::2], children[1::2], strict=True):
            if not isinstance(key, Scalar):
                self.refuse(f"a key must be a string, not {describe(key)}", key.line)
            if key.text == "<<" and not key.style:
                self.refuse("YAML merge keys (<<) are not supported", key.line, "repeat the keys instead")
            if key.text in lines:
                self.refuse(
                    f"duplicate key {key.text!r}; it is first defined on line {lines[key.text]}",
                    key.line,
                    "remove one of them",
                )
            lines[key.text] = key.line
            yield key, value

    def refuse(self, message: str, line: int, hint: str | None = None, code: str | None = None) -> NoReturn:
        raise ConfigError(message, hint, path=self.filename, line=line, code=code)


def describe(node: Node) -> str:
    """Describe a value for a message: the quoted value of a scalar, else the type."""
    if isinstance(node, Sequence):
        return "a list"
    if isinstance(node, Mapping):
        return "a mapping"
    if node.is_null:
        return "nothing"
    return repr(node.text if len(node.text) <= 60 else node.text[:57] + "…")


def to_python(node: Node) -> Any:
    """Convert a node to lists, dicts, and strings. Null becomes None, and numbers stay strings."""
    if isinstance(node, Scalar):
        return None if node.is_null else node.text
    if isinstance(node, Sequence):
        return [to_python(item) for item in node.items]
    return {key.text: to_python(value) for key, value in node.pairs}


def _is_unicode(text: str) -> bool:
    """Return whether a string has no unpaired surrogates, which escape sequences can produce."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


# Part of the parser's message → hint. The message itself is unchanged.
_BACKSLASH = "double the backslash, or use single quotes"
_HINTS = (
    ("unknown escape character", _BACKSLASH),
    ("hexdecimal", _BACKSLASH),
    ("hexadecimal", _BACKSLASH),
    ("mapping values are not allowed", "quote a value that contains ': ', and check the indentation"),
    ("cannot start any token", "quote the value"),
    ("could not find expected ':'", "write one `key: value` per line"),
    ("did not find expected key", "check the indentation, and close all quotes"),
    ("',' or ", "separate the items with commas"),
    ("unexpected end of stream", "close the quote or bracket"),
)


def _to_config_error(error: yaml.MarkedYAMLError, text: str, filename: str) -> ConfigError:
    problem = str(error.problem or error.context or "unexpected text")
    mark = error.problem_mark or error.context_mark
    unclosed = _unclosed_hint(error, text)
    # For these errors, the parser reports the end, but the cause is at the beginning.
    if error.context_mark and (unclosed or "could not find expected ':'" in problem or "end of stream" in problem):
        mark = error.context_mark
    lines = text.splitlines() or [""]
    line = min(mark.line + 1, len(lines)) if mark else len(lines)
    written = lines[line - 1]
    hint = _colon_hint(written) or unclosed or next((advice for part, advice in _HINTS if part in problem), None)
    if re.match(r" *\t", written):
        hint = "indent with spaces, not tabs"
    return ConfigError(f"not valid YAML: {problem}", hint, path=filename, line=line, code=INVALID_YAML)


def _unclosed_hint(error: yaml.MarkedYAMLError, text: str) -> str | None:
    """Return the hint for an unclosed bracket or brace."""
    for opening, closing in ("[]", "{}"):
        if f"',' or '{closing}'" in str(error.problem) and error.context_mark:
            rest = text[error.context_mark.index :]
            if rest.count(opening) > rest.count(closing):
                return f"close the {'bracket' if opening == '[' else 'brace'}: {opening} … {closing}"
    return None


def _colon_hint(line: str) -> str | None:
    """Return the hint for ``nvidiaDocker:true``, without the value, which may be a password."""
    match = re.match(r"\s*([A-Za-z][\w.-]*):[^\s/]", line)
    return f"add a space after the colon: `{match[1]}: …`" if match else None
