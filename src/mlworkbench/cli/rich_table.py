"""Tables on a terminal, fitted to its width. Apart, because importing rich takes longer than most verbs."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .formats import Grid, state_colour


def draw(grid: Grid, *, width: int, colour: bool) -> str:
    """The text of the table, with rich's colours. Cells are shown literally."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        no_color=not colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(_table(grid))
    return "".join(line.rstrip() + "\n" for line in captured.get().split("\n")[:-1])


def _table(grid: Grid) -> Table:
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
            # Folded, not cut: ids are there to be copied.
            overflow="fold",
        )
    for at, row in enumerate(grid.rows):
        # Text, not str: rich takes "[red]" in a str for markup.
        table.add_row(
            *(
                Text(cell, style=state_colour(cell) if grid.is_status(at, index) else "")
                for index, cell in enumerate(row)
            )
        )
    return table
