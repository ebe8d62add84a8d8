"""Property lists and simple tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nicegui import ui

from .text_table import TextTable

Cell = str | Callable[[], object]  # text, or a function that draws the cell


def property_list(rows: Iterable[tuple[str, Cell]], *, mono: bool = False) -> None:
    """Draw a definition list. Text is shown as is."""
    with ui.element("dl").classes("mlw-run-facts"):
        for name, value in rows:
            with ui.element("dt"):
                ui.label(name)
            with ui.element("dd"):
                if callable(value):
                    value()
                else:
                    ui.label(value).classes("mlw-said mlw-mono" if mono else "mlw-said")


def table(titles: Iterable[str], rows: Iterable[Iterable[Cell]], label: str) -> None:
    """Draw a simple table. ``label`` is for screen readers.

    Use functions as cells only in short tables.
    """
    cells = [list(row) for row in rows]
    texts = [[value for value in row if isinstance(value, str)] for row in cells]
    if texts == cells:
        TextTable(label, [(title, "") for title in titles], texts, bare=True)
        return
    with ui.element("div").classes("mlw-run-table-box") as box:
        box.props("tabindex=0 role=region")
        box._props["aria-label"] = label
        with ui.element("table").classes("mlw-run-table"):
            with ui.element("thead"), ui.element("tr"):
                for title in titles:
                    with ui.element("th").props("scope=col"):
                        ui.label(title)
            with ui.element("tbody"):
                for row in cells:
                    with ui.element("tr"):
                        for value in row:
                            with ui.element("td"):
                                value() if callable(value) else ui.label(value)


def heading(text: str) -> None:
    with ui.element("h2"):
        ui.label(text)
