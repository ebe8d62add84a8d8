"""``mlw explain``: explain an error and how to fix it. Needs no network and no project."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator

import click

from ..explain import GROUPS, Symptom, symptom, symptoms
from . import render
from .completion_types import complete_symptom
from .options import result_options
from .terminal_safety import colors_enabled

_MAX_WIDTH = 100
_BOLD, _CYAN = "1", "36"
_ITEM = re.compile(r"(- |\d+\. )(.*)", re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_EMPHASIS = re.compile(r"\*{1,2}(\w[^*]*)\*{1,2}")


@click.command(epilog="Example: mlw explain gpu-not-used")
@click.argument("arguments", nargs=-1, metavar="[NAME|MESSAGE]...", shell_complete=complete_symptom)
@result_options
def explain(arguments: tuple[str, ...], output: str, query: str | None) -> None:
    """Explain an error and how to fix it.

    NAME is the name of a page. MESSAGE is an error message, or a part of one; quotes are not needed. Without arguments,
    lists all pages by topic.
    """
    is_table = output == "table" and query is None
    use_color = render.is_terminal(sys.stdout) and colors_enabled()
    if not arguments:
        if is_table:
            _write(_format_index(use_color))
            render.message("hint: read a page with 'mlw explain NAME'")
            return
        pages = [{"name": page.name, "about": page.title, "group": GROUPS[page.group]} for page in symptoms()]
        render.emit(pages, output=output, query=query)
        return
    page = symptom(" ".join(arguments))
    if not is_table:
        render.emit(_record(page), output=output, query=query)
        return
    _write(format_page(page, min(render.width() or _MAX_WIDTH, _MAX_WIDTH), use_color))


def _write(lines: Iterable[str]) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    render.write_bytes("\n".join(lines).encode(encoding, "replace") + b"\n")


def _format_index(use_color: bool) -> Iterator[str]:
    """Yield all pages, grouped by topic."""
    pages = list(symptoms())
    widest = max(len(page.name) for page in pages)
    for index, (group, title) in enumerate(GROUPS.items()):
        if index:
            yield ""
        yield _colorize(title, _BOLD, use_color)
        for page in pages:
            if page.group == group:
                yield f"  {_colorize(page.name.ljust(widest), _CYAN, use_color)}  {page.title}"


def _record(page: Symptom) -> dict[str, object]:
    return {
        "name": page.name,
        "about": page.title,
        "group": GROUPS[page.group],
        "seen": page.seen(),
        "text": page.body,
    }


def format_page(page: Symptom, width: int, use_color: bool) -> Iterator[str]:
    """Yield the lines of a page, wrapped at ``width``. Longer words are not broken.

    Markdown markup of links and emphasis is removed. Code is colored; without colors, it keeps its backticks.
    """
    yield _colorize(page.title, _BOLD, use_color)
    for block in page.body.split("\n\n"):
        yield ""
        lines = block.split("\n")
        items = [line for line in lines if _ITEM.match(line)]
        for paragraph in items if items else [" ".join(lines)]:
            yield from _wrap(paragraph, width, use_color)


def _wrap(text: str, width: int, use_color: bool) -> Iterator[str]:
    item = _ITEM.fullmatch(text)
    mark, content = (item.group(1), item.group(2)) if item else ("", text)
    plain = _LINK.sub(r"\1 (docs/\2)", _EMPHASIS.sub(r"\1", content))
    lines = textwrap.wrap(
        plain,
        width,
        initial_indent=f"  {mark}" if item else "",
        subsequent_indent=" " * (len(mark) + 2) if item else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
    in_code = False
    for line in lines:
        pieces = line.split("`")
        colored = []
        for index, piece in enumerate(pieces):
            in_code = in_code if index == 0 else not in_code
            colored.append(_colorize(piece, _CYAN, use_color and in_code and bool(piece.strip())))
        yield "".join(colored) if use_color else line


def _colorize(text: str, color: str, use_color: bool) -> str:
    return f"\x1b[{color}m{text}\x1b[0m" if use_color else text
