"""Run list filter. The URL contains the whole filter, so reloads and bookmarks restore it."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from ...sanitize import plain
from ..queries.runs import SORT_KEYS, FilterChoices, RunFilter
from .status_badge import STATUS_ICONS

SINCE = {"": "Any time", "1h": "Last hour", "24h": "Last day", "7d": "Last week", "30d": "Last month"}
RUN_COLUMNS: Mapping[str, tuple[str, str, int]] = {  # label, kind, width
    "status": ("Status", "status", 125),
    "name": ("Name", "text", 130),
    "project": ("Project", "text", 100),
    "number": ("Run number", "number", 118),
    "script": ("Script", "text", 140),
    "arguments": ("Arguments", "text", 220),
    "target": ("Target", "text", 95),
    "created": ("Submitted", "time", 130),
    "started": ("Started", "time", 120),
    "duration": ("Duration", "span", 112),
    "gpu": ("GPU", "text", 80),
    "tags": ("Tags", "tags", 170),
    "note": ("Note", "text", 200),
    "children": ("Child runs", "number", 105),
}
_ID_WIDTH = 246
_VALUE_WIDTHS = {"params": (75, 130), "metrics": (96, 150)}  # minimum and maximum width in pixels
UNSORTED = ("arguments", "children")
_MAX_COLUMNS = 40
_MAX_LENGTH = 4000
_DEBOUNCE = 350  # debounce in milliseconds


@dataclass(frozen=True)
class View:
    """Filter, sort order, and columns of a run list."""

    text: str = ""
    where: str = ""
    status: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    script: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    since: str = ""
    parent: str = ""  # show only child runs of this run
    children: bool = False
    archived: bool = False
    sort: str = ""
    column: tuple[str, ...] = ()  # columns after the run ID; empty: the default columns
    chart: str = "duration"  # what the bar chart shows: duration, metrics.NAME, or none

    @staticmethod
    def from_address(items: Iterable[tuple[str, str]]) -> View:
        """Parse query parameters; ignore invalid ones."""
        values: dict[str, Any] = {}
        for name, value in items:
            kind = _FIELD_TYPES.get(name)
            if kind is tuple and len(values.get(name, ())) < _MAX_COLUMNS:
                values[name] = (*values.get(name, ()), value[:300])
            elif kind is bool:
                values[name] = value == "1"
            elif kind is str:
                values[name] = value[:_MAX_LENGTH]
        return View(**values)

    def to_address(self, path: str) -> str:
        parameters: list[tuple[str, str]] = []
        for name, kind in _FIELD_TYPES.items():
            value = getattr(self, name)
            if kind is tuple:
                parameters += [(name, item) for item in value]
            elif value != getattr(View, name):
                parameters.append((name, "1" if kind is bool else value))
        return f"{path}?{urlencode(parameters)}" if parameters else path

    @property
    def is_filtered(self) -> bool:
        return replace(self, sort="", column=(), chart=View.chart, archived=False, children=False) != View()

    def run_filter(self, project: str | None) -> RunFilter:
        return RunFilter(
            project=project,
            text=self.text,
            where=self.where,
            statuses=self.status,
            targets=self.target,
            scripts=self.script,
            tags=self.tag,
            since=self.since,
            parent=self.parent.strip() or None,
            children=self.children,
            archived=self.archived,
        )

    def rows_url(self, project: str | None) -> str:
        """Return the URL of the rows. The grid adds the sort order and columns."""
        url = replace(self, sort="", column=(), chart=View.chart).to_address("/api/runs/rows")
        if project is None:
            return url
        return f"{url}{'&' if '?' in url else '?'}{urlencode({'project': project})}"

    def command(self, all_projects: bool) -> str:
        """Return the equivalent command."""
        arguments = ["mlw", "history", "list", *(["--all"] if all_projects else [])]
        for name in ("status", "target", "script", "tag"):
            arguments += [argument for value in getattr(self, name) for argument in (f"--{name}", value)]
        arguments += [argument for value in self.text.split() for argument in ("--text", value)]
        for name in ("since", "where", "parent"):
            arguments += [f"--{name}", getattr(self, name)] if getattr(self, name) else []
        arguments += [f"--{name}" for name in ("children", "archived") if getattr(self, name)]
        if self.sort:
            sign = "-" if self.sort.startswith("-") else ""
            arguments.append(f"--sort={sign}{SORT_KEYS.get(self.sort.removeprefix('-'), self.sort.removeprefix('-'))}")
        return plain(shlex.join(arguments), 600)

    def columns(self, default_columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return the column definitions for the grid, starting with the run ID.

        ``default_columns`` are used if the view specifies none.
        """
        columns = [_column("id", "Run ID", "run", _ID_WIDTH)]
        for key in dict.fromkeys(self.column or default_columns):
            if key in RUN_COLUMNS:
                columns.append(_column(key, *RUN_COLUMNS[key]))
            elif key.startswith(("metrics.", "params.")):
                kind, _, name = key.partition(".")
                minimum, maximum = _VALUE_WIDTHS[kind]
                columns.append(_column(key, plain(name, 60), "value", max(minimum, min(maximum, 36 + 8 * len(name)))))
        return columns


def _column(key: str, label: str, kind: str, width: int) -> dict[str, Any]:
    return {"key": key, "label": label, "kind": kind, "width": width, "sortable": key not in UNSORTED}


_FIELD_TYPES = {field.name: {"bool": bool, "str": str}.get(str(field.type), tuple) for field in fields(View)}


class FilterBar:
    """Filter fields above the grid.

    ``on_change`` receives the new view and may show an error below a field.
    """

    def __init__(self, view: View, options: FilterChoices, on_change: Callable[[View], Awaitable[None]]) -> None:
        self.view = view
        self._on_change = on_change
        self._fields: dict[str, Any] = {}
        self._chips: dict[str, ui.button] = {}
        with ui.element("div").classes("mlw-filter").props('role=search aria-label="Filter runs"'):
            self._input("text", "Search", "mlw-filter-text").props("clearable type=search")
            for name, label in (("script", "Script"), ("target", "Target"), ("tag", "Tag")):
                self._choice(name, label, getattr(options, name + "s"))
            self._since()
            self._input("where", "Condition, e.g. loss < 0.1 and lr = 0.01", "mlw-filter-where").props("clearable")
        with ui.element("div").classes("mlw-chips").props('role=group aria-label="Status"'):
            self._parent()
            for status, count in options.statuses.items():
                self._chip(status, count)
            ui.space()
            for name, label in (("children", "Child runs"), ("archived", "Archived")):
                self._fields[name] = ui.checkbox(label, value=getattr(view, name)).props("dense size=sm")
                self._fields[name].on_value_change(lambda event, name=name: self._set(name, bool(event.value)))

    def _input(self, name: str, label: str, classes: str) -> ui.input:
        field = ui.input(label, value=getattr(self.view, name)).props("dense outlined").classes(classes)
        field.props(f"debounce={_DEBOUNCE} maxlength={_MAX_LENGTH}")
        field.on_value_change(lambda event: self._set(name, str(event.value or "")))
        self._fields[name] = field
        return field

    def _choice(self, name: str, label: str, counts: Mapping[str, int]) -> None:
        selected = getattr(self.view, name)
        options = {value: f"{plain(value, 60)} ({count:,})" for value, count in counts.items()}
        options.update({value: plain(value, 60) for value in selected if value not in options})
        field = ui.select(options, label=label, value=list(selected), multiple=True, clearable=True)
        field.props("dense outlined options-dense").classes("mlw-filter-choice")
        field.on_value_change(lambda event: self._set(name, tuple(event.value or ())))
        self._fields[name] = field

    def _since(self) -> None:
        current = self.view.since
        options = {**SINCE, **({current: plain(f"Since {current}", 40)} if current not in SINCE else {})}
        field = ui.select(options, label="Time", value=current).props("dense outlined options-dense")
        field.classes("mlw-filter-choice").on_value_change(lambda event: self._set("since", str(event.value or "")))
        self._fields["since"] = field

    def _parent(self) -> None:
        """Show which run's child runs are listed, with a button that removes this filter."""
        if not self.view.parent:
            return
        name = plain(self.view.parent, 60)
        with ui.element("span").classes("mlw-compared-run") as box:
            ui.label("Child runs of")
            ui.link(name, f"/runs/{quote(self.view.parent, safe='')}").classes("mlw-grid-link mlw-mono")
            button = ui.button(icon="close", color=None).props("flat dense round size=xs").classes("mlw-compared-out")
            button._props["aria-label"] = f"Remove filter: child runs of {name}"

        async def remove() -> None:
            box.set_visibility(False)
            await self._set("parent", "")

        button.on_click(remove)

    def _chip(self, status: str, count: int) -> None:
        button = ui.button(
            f"{status} {count:,}", icon=STATUS_ICONS[status][0], on_click=lambda: self._toggle(status), color=None
        )
        button.props("flat dense no-caps unelevated").classes(f"mlw-chip mlw-{STATUS_ICONS[status][1]}")
        self._chips[status] = button
        self._update_chip(status, count)

    def _update_chip(self, status: str, count: int) -> None:
        is_selected = status in self.view.status
        button = self._chips[status]
        button.set_text(f"{status} {count:,}")
        button.props(f"aria-pressed={'true' if is_selected else 'false'}")
        button.classes(add="mlw-chosen") if is_selected else button.classes(remove="mlw-chosen")
        button.set_visibility(bool(count) or is_selected)

    def show_counts(self, statuses: Mapping[str, int]) -> None:
        for status, count in statuses.items():
            self._update_chip(status, count)

    async def _toggle(self, status: str) -> None:
        selected = self.view.status
        new = tuple(other for other in selected if other != status) if status in selected else (*selected, status)
        await self._set("status", new)

    async def _set(self, name: str, value: Any) -> None:
        if getattr(self.view, name) != value:
            self.view = replace(self.view, **{name: value})
            await self._on_change(self.view)

    def set_error(self, name: str, message: str | None) -> None:
        """Show an error below a field, or clear it."""
        self._fields[name].error = message
