"""Names and what they are, in two columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nicegui import ui

from .sheet import Sheet

Value = str | Callable[[], object]  # words, or what puts something there


def facts(rows: Iterable[tuple[str, Value]], *, mono: bool = False) -> None:
    """A list of definitions; words are shown as they are."""
    with ui.element("dl").classes("mlw-run-facts"):
        for name, value in rows:
            with ui.element("dt"):
                ui.label(name)
            with ui.element("dd"):
                if callable(value):
                    value()
                else:
                    ui.label(value).classes("mlw-said mlw-mono" if mono else "mlw-said")


def table(titles: Iterable[str], rows: Iterable[Iterable[Value]], label: str) -> None:
    """A plain table; for few rows, if there is more than words in it. ``label``: what it is of, for screen readers."""
    cells = [list(row) for row in rows]
    words = [[value for value in row if isinstance(value, str)] for row in cells]
    if words == cells:
        Sheet(label, [(title, "") for title in titles], words, bare=True)
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


def heading(words: str) -> None:
    with ui.element("h2"):
        ui.label(words)
