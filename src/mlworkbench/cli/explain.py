"""``mlw explain``: what is behind a message, and what to do, at length. Needs no network and no project."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator

import click

from ..explain import GROUPS, Symptom, symptom, symptoms
from . import render
from .completion import complete_symptom
from .options import rendering
from .screen import colours

_WIDEST = 100
_BOLD, _CYAN = "1", "36"
_ITEM = re.compile(r"(- |\d+\. )(.*)", re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_STRESS = re.compile(r"\*{1,2}(\w[^*]*)\*{1,2}")


@click.command(epilog="Example: mlw explain gpu-not-used")
@click.argument("words", nargs=-1, metavar="[NAME|MESSAGE]...", shell_complete=complete_symptom)
@rendering
def explain(words: tuple[str, ...], output: str, query: str | None) -> None:
    """Explain an error and how to fix it.

    NAME is the name of a page. MESSAGE is an error message, or a part of one; quotes are not needed. Without arguments,
    lists all pages by topic.
    """
    tidy = output == "table" and query is None
    painted = render.terminal(sys.stdout) and colours()
    if not words:
        if tidy:
            _write(_listing(painted))
            render.message("hint: read a page with 'mlw explain NAME'")
            return
        found = [{"name": one.name, "about": one.title, "group": GROUPS[one.group]} for one in symptoms()]
        render.emit(found, output=output, query=query)
        return
    one = symptom(" ".join(words))
    if not tidy:
        render.emit(_record(one), output=output, query=query)
        return
    _write(page(one, min(render.width() or _WIDEST, _WIDEST), painted))


def _write(lines: Iterable[str]) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    render.pour("\n".join(lines).encode(encoding, "replace") + b"\n")


def _listing(painted: bool) -> Iterator[str]:
    """All pages, each topic below its heading."""
    pages = list(symptoms())
    widest = max(len(one.name) for one in pages)
    for number, (group, title) in enumerate(GROUPS.items()):
        if number:
            yield ""
        yield _paint(title, _BOLD, painted)
        for one in pages:
            if one.group == group:
                yield f"  {_paint(one.name.ljust(widest), _CYAN, painted)}  {one.title}"


def _record(one: Symptom) -> dict[str, object]:
    return {
        "name": one.name,
        "about": one.title,
        "group": GROUPS[one.group],
        "seen": one.seen(),
        "text": one.body,
    }


def page(one: Symptom, width: int, painted: bool) -> Iterator[str]:
    """The text for a terminal: lines of its width, without the signs of Markdown."""
    yield _paint(one.title, _BOLD, painted)
    for block in one.body.split("\n\n"):
        yield ""
        lines = block.split("\n")
        items = [line for line in lines if _ITEM.match(line)]
        for piece in items if items else [" ".join(lines)]:
            yield from _wrapped(piece, width, painted)


def _wrapped(text: str, width: int, painted: bool) -> Iterator[str]:
    item = _ITEM.fullmatch(text)
    mark, words = (item.group(1), item.group(2)) if item else ("", text)
    bare = _LINK.sub(r"\1 (docs/\2)", _STRESS.sub(r"\1", words))
    lines = textwrap.wrap(
        bare,
        width,
        initial_indent=f"  {mark}" if item else "",
        subsequent_indent=" " * (len(mark) + 2) if item else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
    inside = False
    for line in lines:
        pieces = line.split("`")
        shown = []
        for number, piece in enumerate(pieces):
            inside = inside if number == 0 else not inside
            shown.append(_paint(piece, _CYAN, painted and inside and bool(piece.strip())))
        yield "".join(shown) if painted else line


def _paint(text: str, colour: str, painted: bool) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if painted else text
