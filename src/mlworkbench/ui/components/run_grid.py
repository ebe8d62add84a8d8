"""Runs in a grid that holds only the rows in sight: the server filters, sorts and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import nicegui.elements.aggrid  # noqa: F401 - lets the page import AG Grid under the name nicegui-aggrid
from nicegui.element import Element
from nicegui.events import GenericEventArguments

Told = Callable[[Any], Any]


class Grid(Element, component="grid.js"):
    """Asks ``url`` (GET /api/runs/rows with its filter) for the rows that it shows.

    ``columns``: ``{"key", "label", "kind", "width"}``; kind is run, status, text, time, span, number, tags or
    value. ``sort``: the key of a column, with - before it for the largest first. ``place``: under which name the
    browser keeps the user's choice of columns.
    """

    def __init__(self, url: str, columns: Sequence[dict[str, Any]], sort: str, *, label: str, place: str) -> None:
        super().__init__()
        self._props.update({"url": url, "columns": list(columns), "sort": sort, "label": label, "place": place})
        self.classes("mlw-grid")

    def heard(self, **whom: Told) -> None:
        """Whom to tell what: ``chosen`` rows, ``sorted``: another order, ``counted``: how many runs fit, ``trouble``:
        what went wrong, ``kept``: the columns that the browser has kept, if the address names none."""
        for name, told in whom.items():
            self.on(name, _only_what_was_told(told))

    def show(self, url: str, columns: Sequence[dict[str, Any]]) -> None:
        """Another filter, or other columns."""
        self._props["url"] = url
        self._props["columns"] = list(columns)
        self.update()

    def refresh(self) -> None:
        """The rows in sight again; place and choice stay."""
        self.run_method("refresh")

    def choose(self, rows: Sequence[dict[str, Any]]) -> None:
        """Also those that are not in sight."""
        self.run_method("choose", list(rows))

    def keep(self, columns: Sequence[str]) -> None:
        """The user's choice of columns, for the next time; none is forgotten."""
        self.run_method("keep", list(columns))

    def grey(self, yes: bool) -> None:
        """Whether the rows are not those that were asked for."""
        if yes:
            self.classes(add="mlw-grid-stale").props("inert")
        else:
            self.classes(remove="mlw-grid-stale").props(remove="inert")

    def choose_none(self) -> None:
        self.run_method("chooseNone")


def _only_what_was_told(told: Told) -> Callable[[GenericEventArguments], Any]:
    return lambda event: told(event.args)
