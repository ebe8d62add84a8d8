"""A result that is a text of several lines: written to stdout, safe on a terminal, in characters that it has."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

from ..report.plain import plain
from . import formats, render
from .screen import colours

WIDTH = 80  # where nobody looks on
_BOLD, _FAINT = "1", "2"


def write(lines: Iterable[str]) -> None:
    """Lines that are ours, or went through ``plain``; with colours if need be."""
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    render.pour(text.encode(_encoding(), "backslashreplace"))


def width() -> int:
    return render.width() or WIDTH


def colourful() -> bool:
    return render.terminal(sys.stdout) and colours()


def ascii_only() -> bool:
    """Whether curves have to be drawn with letters."""
    from .curves import has_blocks  # noqa: PLC0415 - most results have no curves

    return not has_blocks(_encoding())


def bold(text: str) -> str:
    return f"\x1b[{_BOLD}m{text}\x1b[0m" if text and colourful() else text


def faint(text: str) -> str:
    return f"\x1b[{_FAINT}m{text}\x1b[0m" if text and colourful() else text


def status(text: str) -> str:
    """A run's status, in its color."""
    code = formats.state_colour(text)
    return f"\x1b[{formats.state_colour(text, code=True)}m{text}\x1b[0m" if code and colourful() else text


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Lines of a table; the titles stand out."""
    if not rows:
        return []
    head, rule, *rest = formats.align(formats.Grid([plain(one) for one in titles], rows, right)).splitlines()
    return [bold(head), faint(rule), *rest]


def breadth(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """How many columns of a terminal a table takes."""
    return max((len(line) for line in formats.align(formats.Grid(titles, rows)).splitlines()), default=0) if rows else 0


def pairs(facts: Iterable[tuple[str, str]]) -> list[str]:
    """Names and what they are, below each other; a name that is empty goes on with the one before."""
    known = [(plain(name), text) for name, text in facts]
    wide = max((len(name) for name, _ in known), default=0)
    return [f"{bold(name)}{' ' * (wide - len(name))}  {text}" for name, text in known]


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"
