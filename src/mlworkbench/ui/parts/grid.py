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

    ``columns``: ``{"key", "label", "kind", "width"}``; kind is run, status, text, time, span, number, tags or value.
    ``sort``: the key of a column, with - before it for the largest first.
    """

    def __init__(self, url: str, columns: Sequence[dict[str, Any]], sort: str, *, label: str) -> None:
        super().__init__()
        self._props.update({"url": url, "columns": list(columns), "sort": sort, "label": label})
        self.classes("mlw-grid")

    def heard(self, *, chosen: Told, sorted_by: Told, counted: Told, trouble: Told) -> None:
        """Whom to tell what: chosen rows, another order, how many runs fit, what went wrong."""
        for name, told in (("chosen", chosen), ("sorted", sorted_by), ("counted", counted), ("trouble", trouble)):
            self.on(name, _only_what_was_told(told))

    def show(self, url: str, columns: Sequence[dict[str, Any]]) -> None:
        """Another filter, or other columns."""
        self._props["url"] = url
        self._props["columns"] = list(columns)
        self.update()

    def refresh(self) -> None:
        """The rows in sight again; place and choice stay."""
        self.run_method("refresh")

    def choose_none(self) -> None:
        self.run_method("chooseNone")


def _only_what_was_told(told: Told) -> Callable[[GenericEventArguments], Any]:
    return lambda event: told(event.args)
