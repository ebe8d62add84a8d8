"""Grid of runs that holds only visible rows. The server filters, sorts, and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import nicegui.elements.aggrid  # noqa: F401 - registers its ES module as "nicegui-aggrid"
from nicegui.element import Element
from nicegui.events import GenericEventArguments

Listener = Callable[[Any], Any]


class RunGrid(Element, component="grid.js"):
    """Grid that loads visible rows from ``url`` (``GET /api/runs/rows`` with the filter).

    ``columns`` contains ``{"key", "label", "kind", "width"}`` for each column. The kind is run, status,
    text, time, span, number, tags, or value. ``sort`` is a column key, with a leading ``-`` for
    descending order. ``storage_key`` is the key under which the browser stores the user's columns.
    """

    def __init__(self, url: str, columns: Sequence[dict[str, Any]], sort: str, *, label: str, storage_key: str) -> None:
        super().__init__()
        self._props.update({"url": url, "columns": list(columns), "sort": sort, "label": label, "place": storage_key})
        self.classes("mlw-grid")

    def add_listeners(self, **listeners: Listener) -> None:
        """Register listeners for grid events.

        Events and their arguments: ``chosen``: selected rows; ``sorted``: new sort order; ``counted``:
        number of matching runs; ``trouble``: error message; ``kept``: columns that the browser has stored,
        if the URL contains none.
        """
        for name, listener in listeners.items():
            self.on(name, _pass_arguments(listener))

    def show(self, url: str, columns: Sequence[dict[str, Any]]) -> None:
        """Change the filter and columns."""
        self._props["url"] = url
        self._props["columns"] = list(columns)
        self.update()

    def refresh(self) -> None:
        """Reload the visible rows, keeping the scroll position and selection."""
        self.run_method("refresh")

    def select(self, rows: Sequence[dict[str, Any]]) -> None:
        """Select rows, including those that are not visible."""
        self.run_method("choose", list(rows))

    def store_columns(self, columns: Sequence[str]) -> None:
        """Store the user's columns in the browser. An empty list deletes them."""
        self.run_method("keep", list(columns))

    def set_stale(self, is_stale: bool) -> None:
        """Gray out the rows while they do not match the current filter."""
        if is_stale:
            self.classes(add="mlw-grid-stale").props("inert")
        else:
            self.classes(remove="mlw-grid-stale").props(remove="inert")

    def select_none(self) -> None:
        self.run_method("chooseNone")


def _pass_arguments(listener: Listener) -> Callable[[GenericEventArguments], Any]:
    return lambda event: listener(event.args)
