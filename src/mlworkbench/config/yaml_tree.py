"""Reads a YAML or JSON file as a tree in which every value knows its place. Makes no sense of the values.

A project may come from a stranger: files that are huge, recursive, expanding, ambiguous, or that would
construct objects are refused, with path and line.
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
from .place import leads_out

MAX_BYTES = 1 << 20
COPY_IT = "copy the file into the project: mlw uploads only the project to the target"
MAX_NODES = 10_000
MAX_DEPTH = 50

INVALID_YAML = "invalid-yaml"  # code of a text that is no mapping of keys to values
_TAG = "tag:yaml.org,2002:"
_TAGS = {None, "!", *(_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq"))}
_NULLS = ("", "~", "null", "Null", "NULL")

# The parser in C is some ten times quicker; where PyYAML was built without it, the slow one does.
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Scalar:
    """A value as it was written. Its style is "" for a plain one, else the first sign: ' " | >"""

    text: str
    style: str
    line: int
    start: int
    end: int

    @property
    def null(self) -> bool:
        return not self.style and self.text in _NULLS


@dataclass(frozen=True)
class Sequence:
    """A list. ``flow`` is the style in brackets."""

    items: tuple[Node, ...]
    flow: bool
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Mapping:
    """A mapping, in the order of the file; no key comes twice."""

    pairs: tuple[tuple[Scalar, Node], ...]
    flow: bool
    line: int
    start: int
    end: int


Node = Scalar | Sequence | Mapping


def load(path: Path) -> Mapping:
    """The mapping in a file. An empty file is an empty mapping."""
    shown = show_path(path)
    return parse(read_bytes(path, shown), shown)


def show_path(path: Path) -> str:
    """A path as a person in the current folder would write it."""
    text = str(path)
    try:
        here = os.getcwd() + os.sep
    except OSError:  # the current folder was deleted
        return text
    return text[len(here) :] if text.startswith(here) else text


def require_inside(path: Path, root: Path) -> None:
    """Raise ConfigError if a file of a project is a link to a file elsewhere: a project has no say over that one."""
    if leads_out(path, root):
        raise ConfigError(outside(path.name, path), COPY_IT, path=show_path(path))


def outside(name: str, path: Path) -> str:
    """The sentence about a file that a project names and does not contain."""
    return f"{name} is outside the project, at {os.path.realpath(path)}"


def read_bytes(path: Path, shown: str) -> bytes:
    # Without O_NONBLOCK a named pipe in a project would hold us for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError("not a regular file", "replace it with a plain text file", path=shown)
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("the file does not exist", path=shown) from None
    except OSError as error:
        raise ConfigError(f"cannot read the file: {error.strerror}", path=shown) from None
    if len(data) > MAX_BYTES:
        raise ConfigError("the file is larger than 1 MiB", "keep data in separate files", path=shown)
    return data


def decode(data: bytes, shown: str) -> str:
    """The text of a file without its byte order mark; line ends stay as they are."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8"
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            hint += "; it looks like UTF-16, as written by > in PowerShell"
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("the file is not UTF-8 text", hint, path=shown, line=line) from None


def parse(data: bytes, shown: str, loader: Any = Loader) -> Mapping:
    """The mapping in the bytes of a file that errors call ``shown``."""
    text = decode(data, shown)
    try:
        return _Composer(loader(text), shown).document()
    except yaml.MarkedYAMLError as error:
        raise _explain(error, text, shown) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError("the file contains a character that YAML does not allow", path=shown, line=line) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The parser in Python lets the latter two through for absurd numbers in escapes and directives.
        raise ConfigError(f"not valid YAML: {error}", path=shown, code=INVALID_YAML) from None


class _Composer:
    """Builds the tree from the parser's events, so that limits bite before the memory is used."""

    def __init__(self, loader: Any, shown: str) -> None:
        self.loader = loader
        self.shown = shown
        self.count = 0
        self.anchors: dict[str, tuple[Node, int] | None] = {}  # with expanded size; None while being built

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
        if isinstance(node, Scalar) and node.null:
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
        self.grow(1, line)
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
        known = self.anchors[anchor]
        if known is None:
            return self.refuse(f"YAML alias *{anchor} refers to itself", line)
        self.grow(known[1], line)
        place = {"line": line, "start": event.start_mark.index, "end": event.end_mark.index}
        if isinstance(known[0], Scalar):
            return replace(known[0], **place)
        return replace(known[0], flow=True, **place)  # it stands on one line, whatever it stands for

    def grow(self, nodes: int, line: int) -> None:
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
        # The end of a block is where the next thing begins, beyond any comments: take the last value's.
        if not flow and children:
            end = max(start, children[-1].end)
        if is_list:
            return Sequence(tuple(children), flow, line, start, end)
        return Mapping(tuple(self.pairs(children)), flow, line, start, end)

    def pairs(self, children: list[Node]) -> Iterator[tuple[Scalar, Node]]:
        seen: dict[str, int] = {}
        for key, value in zip(children[::2], children[1::2], strict=True):
            if not isinstance(key, Scalar):
                self.refuse(f"a key must be a string, not {describe(key)}", key.line)
            if key.text == "<<" and not key.style:
                self.refuse("YAML merge keys (<<) are not supported", key.line, "repeat the keys instead")
            if key.text in seen:
                self.refuse(
                    f"duplicate key {key.text!r}; it is first defined on line {seen[key.text]}",
                    key.line,
                    "remove one of them",
                )
            seen[key.text] = key.line
            yield key, value

    def refuse(self, message: str, line: int, hint: str | None = None, code: str | None = None) -> NoReturn:
        raise ConfigError(message, hint, path=self.shown, line=line, code=code)


def describe(node: Node) -> str:
    """A value in a message: quoted if short, else by what it is."""
    if isinstance(node, Sequence):
        return "a list"
    if isinstance(node, Mapping):
        return "a mapping"
    if node.null:
        return "nothing"
    return repr(node.text if len(node.text) <= 60 else node.text[:57] + "…")


def plain(node: Node) -> Any:
    """The value as lists, dicts and texts; null is None. Nothing is taken for a number."""
    if isinstance(node, Scalar):
        return None if node.null else node.text
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key.text: plain(value) for key, value in node.pairs}


def _is_unicode(text: str) -> bool:
    """False for half a surrogate pair, which an escape can smuggle in."""
    return text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text)


# What the parser says → what helps. The parser's own words stay in the message.
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


def _explain(error: yaml.MarkedYAMLError, text: str, shown: str) -> ConfigError:
    problem = str(error.problem or error.context or "unexpected text")
    mark = error.problem_mark or error.context_mark
    unclosed = _unclosed(error, text)
    # For these the parser notices at the end what went wrong at the beginning.
    if error.context_mark and (unclosed or "could not find expected ':'" in problem or "end of stream" in problem):
        mark = error.context_mark
    lines = text.splitlines() or [""]
    line = min(mark.line + 1, len(lines)) if mark else len(lines)
    written = lines[line - 1]
    hint = _colon_hint(written) or unclosed or next((advice for part, advice in _HINTS if part in problem), None)
    if re.match(r" *\t", written):
        hint = "indent with spaces, not tabs"
    return ConfigError(f"not valid YAML: {problem}", hint, path=shown, line=line, code=INVALID_YAML)


def _unclosed(error: yaml.MarkedYAMLError, text: str) -> str | None:
    """The hint for a bracket or brace that is never closed."""
    for opening, closing in ("[]", "{}"):
        if f"',' or '{closing}'" in str(error.problem) and error.context_mark:
            rest = text[error.context_mark.index :]
            if rest.count(opening) > rest.count(closing):
                return f"close the {'bracket' if opening == '[' else 'brace'}: {opening} … {closing}"
    return None


def _colon_hint(line: str) -> str | None:
    """For ``nvidiaDocker:true``. The value is not repeated: it may be a password."""
    found = re.match(r"\s*([A-Za-z][\w.-]*):[^\s/]", line)
    return f"add a space after the colon: `{found[1]}: …`" if found else None
