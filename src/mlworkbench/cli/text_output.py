"""Write multi-line text results to stdout, using only characters that its encoding supports."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

from ..sanitize import plain
from . import output_formats, render
from .terminal_safety import colors_enabled

DEFAULT_WIDTH = 80  # used if there is no terminal
_BOLD, _FAINT = "1", "2"


def write_lines(lines: Iterable[str]) -> None:
    """Write lines that are trusted or were sanitized with ``plain``. They may contain colors."""
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    render.write_bytes(text.encode(_encoding(), "backslashreplace"))


def width() -> int:
    return render.width() or DEFAULT_WIDTH


def use_color() -> bool:
    return render.is_terminal(sys.stdout) and colors_enabled()


def ascii_only() -> bool:
    """Return whether charts must be drawn with ASCII characters."""
    from .curves import supports_blocks  # noqa: PLC0415 - only charts need it

    return not supports_blocks(_encoding())


def bold(text: str) -> str:
    return f"\x1b[{_BOLD}m{text}\x1b[0m" if text and use_color() else text


def faint(text: str) -> str:
    return f"\x1b[{_FAINT}m{text}\x1b[0m" if text and use_color() else text


def color_status(text: str) -> str:
    """Return a run's status, formatted in its color."""
    code = output_formats.status_color(text)
    return f"\x1b[{output_formats.status_color(text, code=True)}m{text}\x1b[0m" if code and use_color() else text


def format_table(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return the lines of a table, with emphasized titles."""
    if not rows:
        return []
    head, rule, *rest = output_formats.format_table(
        output_formats.Grid([plain(title) for title in titles], rows, right)
    ).splitlines()
    return [bold(head), faint(rule), *rest]


def table_width(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the number of terminal columns that a table occupies."""
    return (
        max(
            (len(line) for line in output_formats.format_table(output_formats.Grid(titles, rows)).splitlines()),
            default=0,
        )
        if rows
        else 0
    )


def format_pairs(facts: Iterable[tuple[str, str]]) -> list[str]:
    """Format names and values in two columns. An empty name continues the previous entry."""
    entries = [(plain(name), text) for name, text in facts]
    name_width = max((len(name) for name, _ in entries), default=0)
    return [f"{bold(name)}{' ' * (name_width - len(name))}  {text}" for name, text in entries]


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"
