"""Tables for terminals, in a separate module because importing rich is slower than most commands."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .output_formats import Grid, status_color


def draw_table(grid: Grid, *, width: int, color: bool) -> str:
    """Format the table with rich, optionally in color. Cells are shown literally."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        no_color=not color,
        color_system="standard" if color else None,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(_build_table(grid))
    return "".join(line.rstrip() + "\n" for line in captured.get().split("\n")[:-1])


def _build_table(grid: Grid) -> Table:
    titles = grid.titles
    table = Table(
        box=box.SIMPLE_HEAD if titles else None,
        show_header=titles is not None,
        header_style="bold",
        pad_edge=False,
        show_edge=False,
    )
    for index in range(len(grid.rows[0])):
        table.add_column(
            Text(titles[index]) if titles else "",
            justify="right" if index in grid.right else "left",
            # Wrap instead of truncating, so that IDs can be copied.
            overflow="fold",
        )
    for row_index, row in enumerate(grid.rows):
        # Text, not str: rich interprets "[red]" in a str as markup.
        table.add_row(
            *(
                Text(cell, style=status_color(cell) if grid.is_status(row_index, index) else "")
                for index, cell in enumerate(row)
            )
        )
    return table
