"""``mlw explain``: what is behind a message, and what to do, at length. Needs no network and no project."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator

import click

from ..explain import GROUPS, Symptom, symptom, symptoms
from . import render
from .completion import complete_symptom
from .options import rendering
from .screen import colours

_COLUMNS = ("name", "about")
_WIDEST = 100
_BOLD, _CYAN = "1", "36"
_ITEM = re.compile(r"(- |\d+\. )(.*)", re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_STRESS = re.compile(r"\*{1,2}(\w[^*]*)\*{1,2}")


@click.command(epilog="Example: mlw explain gpu-not-used")
@click.argument("name", required=False, metavar="[SYMPTOM]", shell_complete=complete_symptom)
@rendering
def explain(name: str | None, output: str, query: str | None) -> None:
    """Explain a trouble: what you see, why, and what to do.

    SYMPTOM is a name from the list that is shown without one, or a message in quotes.
    """
    if name is None:
        found = [{"name": one.name, "about": one.title, "group": GROUPS[one.group]} for one in symptoms()]
        render.emit(found, output=output, query=query, columns=_COLUMNS)
        return
    one = symptom(name)
    if output != "table" or query is not None:
        render.emit(_record(one), output=output, query=query)
        return
    width = min(render.width() or _WIDEST, _WIDEST)
    painted = render.terminal(sys.stdout) and colours()
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    render.pour("\n".join(page(one, width, painted)).encode(encoding, "replace") + b"\n")


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
