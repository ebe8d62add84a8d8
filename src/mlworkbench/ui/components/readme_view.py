"""Rendered readme. The text is untrusted: raw HTML and links with unsafe schemes are not rendered."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from nicegui.element import Element

from ...runfiles.safe_paths import path_problem
from ..queries.files import IMAGE_TYPES

if TYPE_CHECKING:
    from markdown_it.token import Token

NodeTree = list[Any]  # each item is a string or [tag, attributes, children]

_MAX_CHARACTERS = 60_000  # maximum number of characters; the editor shows the rest
_MAX_TOKENS = 20_000  # maximum number of tokens
_MARKUP = re.compile(r"[\n\[\]!*_~`|<>&]")
_MAX_MARKUP = 12_000  # maximum markup characters, which slow down parsing; about 1 in 15 characters of normal text
_MAX_CELLS = 20_000  # maximum table cells, including the empty ones that the parser adds to short rows
_TAGS = frozenset(
    "p h1 h2 h3 h4 h5 h6 strong em s code pre blockquote ul ol li table thead tbody tr th td hr br".split()
)
_SCHEMES = ("http", "https", "mailto")
_HIDDEN = re.compile(r"[\x00-\x20\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff]")


class ReadmeView(Element, component="readme.js"):
    """Rendered readme. The browser creates each element from the tree; no text is parsed as HTML."""

    def __init__(self, tree: NodeTree) -> None:
        super().__init__()
        self._props["tree"] = tree


def parse_readme(text: str, key: str, path: str) -> NodeTree:
    """Parse a readme into elements. Run this in a worker thread. Links are relative to ``path``."""
    builder = _TreeBuilder(key, posixpath.dirname(path))
    excerpt = text[:_MAX_CHARACTERS]
    if path.lower().endswith((".md", ".markdown")) and len(_MARKUP.findall(excerpt)) <= _MAX_MARKUP:
        tree = builder.tree(_flatten(_tokenize(excerpt)))
    else:
        tree = [["pre", {}, [excerpt]]]
    if len(text) > _MAX_CHARACTERS:
        tree.append(["p", {}, ["File truncated. ", [*builder.link_to(path), ["Open the file"]]]])
    return tree


def parse_description(text: str) -> NodeTree:
    """Parse Markdown that does not belong to a project. Relative links are not links."""
    excerpt = text[:_MAX_CHARACTERS]
    if len(_MARKUP.findall(excerpt)) > _MAX_MARKUP:
        return [["pre", {}, [excerpt]]]
    return _TreeBuilder(None, "").tree(_flatten(_tokenize(excerpt)))


def _tokenize(text: str) -> list[Token]:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only where there is a readme

    reader = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    lines = text.split("\n")
    if max(line.count("|") for line in lines) * len(lines) > _MAX_CELLS:
        reader.disable("table")
    return reader.parse(text)


def _flatten(tokens: Iterable[Token]) -> Iterator[Token]:
    for count, token in enumerate(tokens):
        if count > _MAX_TOKENS:
            return
        if token.type == "inline":
            yield from (token.children or ())[:_MAX_TOKENS]
        else:
            yield token


class _TreeBuilder:
    def __init__(self, key: str | None, folder: str) -> None:
        self._key = key  # of the project; None if there is no project to link to
        self._folder = folder

    def tree(self, tokens: Iterable[Token]) -> NodeTree:
        top: NodeTree = []
        stack: list[NodeTree] = [top]
        for token in tokens:
            if token.nesting < 0:
                if len(stack) > 1:
                    stack.pop()
                continue
            if token.type == "paragraph_open" and token.hidden:
                stack.append(stack[-1])  # the items of a tight list contain text without a paragraph
                continue
            node = self._node(token)
            stack[-1].append(node)
            if token.nesting > 0:
                stack.append(node[2] if isinstance(node, list) else [])
        return top

    def _node(self, token: Token) -> Any:
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
            return [_lower_heading(token.tag), {}, []]
        return ["span", {}, []] if token.nesting > 0 else token.content

    def _link(self, address: str) -> Any:
        """Link to a website in a new window, or to a project file in the editor.

        Other targets are not linked.
        """
        url = _external_url(address)
        if url:
            return ["a", {"href": url, "target": "_blank", "rel": "noopener noreferrer"}, []]
        path = self._project_path(address)
        if path:
            return [*self.link_to(path), []]
        return ["span", {}, []]

    def link_to(self, path: str) -> NodeTree:
        """Return the tag and attributes of a link to a project file."""
        return ["a", {"href": f"/p/{quote(self._key or '')}/files?{urlencode({'path': path})}"}]

    def _image(self, address: str, alt: str) -> Any:
        """Show project images, but only link to others: loading them would reveal the user's IP address."""
        path = self._project_path(address)
        if path and posixpath.splitext(path)[1].lower() in IMAGE_TYPES:
            source = f"/api/projects/{quote(self._key or '')}/picture?{urlencode({'path': path})}"
            return ["img", {"src": source, "alt": alt or posixpath.basename(path)}, []]
        url = _external_url(address)
        label = f"[image: {alt}]" if alt else "[image]"
        if url:
            return ["a", {"href": url, "target": "_blank", "rel": "noopener noreferrer"}, [label]]
        return ["span", {}, [label]]

    def _project_path(self, address: str) -> str | None:
        if _HIDDEN.search(address) or not address or self._key is None:
            return None
        try:
            parts = urlsplit(address)
        except ValueError:
            return None
        if parts.scheme or parts.netloc or not parts.path or "\\" in parts.path:
            return None
        path = posixpath.normpath(posixpath.join(self._folder, unquote(parts.path)))
        return None if path_problem(path) is not None or path == "." else path


def _external_url(address: str) -> str | None:
    if _HIDDEN.search(address):
        return None
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    is_usable = parts.scheme.lower() in _SCHEMES and (parts.netloc or parts.scheme.lower() == "mailto")
    return address if is_usable else None


def _lower_heading(tag: str) -> str:
    """Lower a heading by one level, because the page has its own top heading."""
    return f"h{min(6, int(tag[1]) + 1)}" if re.fullmatch("h[1-6]", tag) else tag
