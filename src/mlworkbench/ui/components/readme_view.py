"""A readme as people expect to see it. It is a stranger's text: no HTML of its own, no address that does something."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from nicegui.element import Element

from ...runfiles.beneath import refusal
from ..answers.files import PICTURES

if TYPE_CHECKING:
    from markdown_it.token import Token

Tree = list[Any]  # texts, and [tag, attributes, children]

_LONGEST = 60_000  # characters; the rest is shown in the editor
_MOST = 20_000  # tokens
_MARKUP = re.compile(r"[\n\[\]!*_~`|<>&]")
_MOST_MARKUP = 12_000  # the time that parsing takes depends on these; ordinary text has one in fifteen characters
_MOST_CELLS = 20_000  # of a table: its rows are filled up to the number of columns
_TAGS = frozenset(
    "p h1 h2 h3 h4 h5 h6 strong em s code pre blockquote ul ol li table thead tbody tr th td hr br".split()
)
_SCHEMES = ("http", "https", "mailto")
_HIDDEN = re.compile(r"[\x00-\x20\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff]")


class Readme(Element, component="readme.js"):
    """Made of elements of the page one by one; there is never a text that is taken for HTML."""

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self._props["tree"] = tree


def tree_of(text: str, key: str, path: str) -> Tree:
    """The elements of a readme; call it in a worker thread. ``path``: the file in the project, for relative links."""
    maker = _Maker(key, posixpath.dirname(path))
    shown = text[:_LONGEST]
    if path.lower().endswith((".md", ".markdown")) and len(_MARKUP.findall(shown)) <= _MOST_MARKUP:
        tree = maker.tree(_flat(_tokens(shown)))
    else:
        tree = [["pre", {}, [shown]]]
    if len(text) > _LONGEST:
        tree.append(["p", {}, ["File truncated. ", [*maker.link_to(path), ["Open the file"]]]])
    return tree


def _tokens(text: str) -> list[Token]:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only where there is a readme

    reader = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    lines = text.split("\n")
    if max(line.count("|") for line in lines) * len(lines) > _MOST_CELLS:
        reader.disable("table")
    return reader.parse(text)


def _flat(tokens: Iterable[Token]) -> Iterator[Token]:
    for count, token in enumerate(tokens):
        if count > _MOST:
            return
        if token.type == "inline":
            yield from (token.children or ())[:_MOST]
        else:
            yield token


class _Maker:
    def __init__(self, key: str, folder: str) -> None:
        self._key = key
        self._folder = folder

    def tree(self, tokens: Iterable[Token]) -> Tree:
        top: Tree = []
        stack: list[Tree] = [top]
        for token in tokens:
            if token.nesting < 0:
                if len(stack) > 1:
                    stack.pop()
                continue
            if token.type == "paragraph_open" and token.hidden:
                stack.append(stack[-1])  # of a tight list: its words stand in the item itself
                continue
            made = self._one(token)
            stack[-1].append(made)
            if token.nesting > 0:
                stack.append(made[2] if isinstance(made, list) else [])
        return top

    def _one(self, token: Token) -> Any:
        if token.type in ("fence", "code_block"):
            return ["pre", {}, [["code", {}, [token.content]]]]
        if token.type == "code_inline":
            return ["code", {}, [token.content]]
        if token.type == "image":
            return self._image(str(token.attrGet("src") or ""), token.content)
        if token.type == "link_open":
            return self._link(str(token.attrGet("href") or ""))
        if token.type == "softbreak":
            return " "
        if token.type == "hardbreak":
            return ["br", {}, []]
        if token.tag in _TAGS and token.type != "text":
            return [_below(token.tag), {}, []]
        return ["span", {}, []] if token.nesting > 0 else token.content

    def _link(self, address: str) -> Any:
        """To the web in a window of its own, or to a file of the project in the editor; else no link at all."""
        outside = _outside(address)
        if outside:
            return ["a", {"href": outside, "target": "_blank", "rel": "noopener noreferrer"}, []]
        inside = self._inside(address)
        if inside:
            return [*self.link_to(inside), []]
        return ["span", {}, []]

    def link_to(self, path: str) -> Tree:
        """Tag and attributes of a link to a file of the project."""
        return ["a", {"href": f"/p/{quote(self._key)}/files?{urlencode({'path': path})}"}]

    def _image(self, address: str, words: str) -> Any:
        """Only the project's own: one from elsewhere would tell its host who reads this."""
        inside = self._inside(address)
        if inside and posixpath.splitext(inside)[1].lower() in PICTURES:
            source = f"/api/projects/{quote(self._key)}/picture?{urlencode({'path': inside})}"
            return ["img", {"src": source, "alt": words or posixpath.basename(inside)}, []]
        outside = _outside(address)
        said = f"[image: {words}]" if words else "[image]"
        if outside:
            return ["a", {"href": outside, "target": "_blank", "rel": "noopener noreferrer"}, [said]]
        return ["span", {}, [said]]

    def _inside(self, address: str) -> str | None:
        if _HIDDEN.search(address) or not address:
            return None
        try:
            parts = urlsplit(address)
        except ValueError:
            return None
        if parts.scheme or parts.netloc or not parts.path or "\\" in parts.path:
            return None
        path = posixpath.normpath(posixpath.join(self._folder, unquote(parts.path)))
        return None if refusal(path) is not None or path == "." else path


def _outside(address: str) -> str | None:
    if _HIDDEN.search(address):
        return None
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    usable = parts.scheme.lower() in _SCHEMES and (parts.netloc or parts.scheme.lower() == "mailto")
    return address if usable else None


def _below(tag: str) -> str:
    """The page has a heading above all of these."""
    return f"h{min(6, int(tag[1]) + 1)}" if re.fullmatch("h[1-6]", tag) else tag
