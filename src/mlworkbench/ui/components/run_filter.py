"""Which runs a page shows: the whole of it stands in the address, so that a reload or a bookmark brings it back."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from ...report.plain import plain
from ..answers.runs import SORTED, Offered, Wishes
from .status import SIGNS

SINCE = {"": "Any time", "1h": "Last hour", "24h": "Last day", "7d": "Last week", "30d": "Last month"}
OWN_COLUMNS: Mapping[str, tuple[str, str, int]] = {  # label, kind, width
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
_VALUE_WIDTHS = {"params": (75, 130), "metrics": (96, 150)}  # at least, at most
_UNSORTED = ("arguments", "children")
_MOST_COLUMNS = 40
_LONGEST = 4000
_PAUSE = 350  # milliseconds after the last key


@dataclass(frozen=True)
class View:
    """Filter, order and columns."""

    text: str = ""
    where: str = ""
    status: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    script: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    since: str = ""
    parent: str = ""  # only its children
    children: bool = False
    archived: bool = False
    sort: str = ""
    column: tuple[str, ...] = ()  # those beside the id; none: the usual ones
    chart: str = "duration"  # what the bars above are: duration, metrics.NAME, or none

    @staticmethod
    def from_address(items: Iterable[tuple[str, str]]) -> View:
        """Of what stands in an address; what makes no sense is passed over."""
        told: dict[str, Any] = {}
        for name, value in items:
            kind = _KINDS.get(name)
            if kind is tuple and len(told.get(name, ())) < _MOST_COLUMNS:
                told[name] = (*told.get(name, ()), value[:300])
            elif kind is bool:
                told[name] = value == "1"
            elif kind is str:
                told[name] = value[:_LONGEST]
        return View(**told)

    def to_address(self, path: str) -> str:
        told: list[tuple[str, str]] = []
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if kind is tuple:
                told += [(name, one) for one in value]
            elif value != getattr(View, name):
                told.append((name, "1" if kind is bool else value))
        return f"{path}?{urlencode(told)}" if told else path

    @property
    def filtered(self) -> bool:
        return replace(self, sort="", column=(), chart=View.chart, archived=False, children=False) != View()

    def wishes(self, project: str | None) -> Wishes:
        return Wishes(
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
        """Where the grid asks for its rows; order and columns are its own to add."""
        told = replace(self, sort="", column=(), chart=View.chart).to_address("/api/runs/rows")
        if project is None:
            return told
        return f"{told}{'&' if '?' in told else '?'}{urlencode({'project': project})}"

    def command(self, everywhere: bool) -> str:
        """What shows the same on the command line."""
        words = ["mlw", "history", "list", *(["--all"] if everywhere else [])]
        for name in ("status", "target", "script", "tag"):
            words += [word for one in getattr(self, name) for word in (f"--{name}", one)]
        words += [word for one in self.text.split() for word in ("--text", one)]
        for name in ("since", "where", "parent"):
            words += [f"--{name}", getattr(self, name)] if getattr(self, name) else []
        words += [f"--{name}" for name in ("children", "archived") if getattr(self, name)]
        if self.sort:
            way = "-" if self.sort.startswith("-") else ""
            words.append(f"--sort={way}{SORTED.get(self.sort.removeprefix('-'), self.sort.removeprefix('-'))}")
        return plain(shlex.join(words), 600)

    def columns(self, usual: Sequence[str]) -> list[dict[str, Any]]:
        """As the grid takes them, the id first; ``usual``: where the user has chosen none."""
        found = [_column("id", "Run ID", "run", _ID_WIDTH)]
        for key in dict.fromkeys(self.column or usual):
            if key in OWN_COLUMNS:
                found.append(_column(key, *OWN_COLUMNS[key]))
            elif key.startswith(("metrics.", "params.")):
                kind, _, name = key.partition(".")
                least, most = _VALUE_WIDTHS[kind]
                found.append(_column(key, plain(name, 60), "value", max(least, min(most, 36 + 8 * len(name)))))
        return found


def _column(key: str, label: str, kind: str, width: int) -> dict[str, Any]:
    return {"key": key, "label": label, "kind": kind, "width": width, "sortable": key not in _UNSORTED}


_KINDS = {one.name: {"bool": bool, "str": str}.get(str(one.type), tuple) for one in fields(View)}


class FilterBar:
    """The fields above the grid. ``changed`` gets the new view, and may refuse it by words under a field."""

    def __init__(self, view: View, offered: Offered, changed: Callable[[View], Awaitable[None]]) -> None:
        self.view = view
        self._changed = changed
        self._fields: dict[str, Any] = {}
        self._chips: dict[str, ui.button] = {}
        with ui.element("div").classes("mlw-filter").props('role=search aria-label="Filter runs"'):
            self._input("text", "Search", "mlw-filter-text").props("clearable type=search")
            for name, label in (("script", "Script"), ("target", "Target"), ("tag", "Tag")):
                self._choice(name, label, getattr(offered, name + "s"))
            self._since()
            self._input("where", "Condition, e.g. loss < 0.1 and lr = 0.01", "mlw-filter-where").props("clearable")
        with ui.element("div").classes("mlw-chips").props('role=group aria-label="Status"'):
            self._parent()
            for word, count in offered.statuses.items():
                self._chip(word, count)
            ui.space()
            for name, label in (("children", "Child runs"), ("archived", "Archived")):
                self._fields[name] = ui.checkbox(label, value=getattr(view, name)).props("dense size=sm")
                self._fields[name].on_value_change(lambda event, name=name: self._set(name, bool(event.value)))

    def _input(self, name: str, label: str, classes: str) -> ui.input:
        field = ui.input(label, value=getattr(self.view, name)).props("dense outlined").classes(classes)
        field.props(f"debounce={_PAUSE} maxlength={_LONGEST}")
        field.on_value_change(lambda event: self._set(name, str(event.value or "")))
        self._fields[name] = field
        return field

    def _choice(self, name: str, label: str, counted: Mapping[str, int]) -> None:
        chosen = getattr(self.view, name)
        options = {one: f"{plain(one, 60)} ({count:,})" for one, count in counted.items()}
        options.update({one: plain(one, 60) for one in chosen if one not in options})
        field = ui.select(options, label=label, value=list(chosen), multiple=True, clearable=True)
        field.props("dense outlined options-dense").classes("mlw-filter-choice")
        field.on_value_change(lambda event: self._set(name, tuple(event.value or ())))
        self._fields[name] = field

    def _since(self) -> None:
        now = self.view.since
        options = {**SINCE, **({now: plain(f"Since {now}", 40)} if now not in SINCE else {})}
        field = ui.select(options, label="Time", value=now).props("dense outlined options-dense")
        field.classes("mlw-filter-choice").on_value_change(lambda event: self._set("since", str(event.value or "")))
        self._fields["since"] = field

    def _parent(self) -> None:
        """Whose children these are, as long as that is so."""
        if not self.view.parent:
            return
        name = plain(self.view.parent, 60)
        with ui.element("span").classes("mlw-compared-run") as place:
            ui.label("Child runs of")
            ui.link(name, f"/runs/{quote(self.view.parent, safe='')}").classes("mlw-grid-link mlw-mono")
            button = ui.button(icon="close", color=None).props("flat dense round size=xs").classes("mlw-compared-out")
            button._props["aria-label"] = f"Remove filter: child runs of {name}"

        async def leave() -> None:
            place.set_visibility(False)
            await self._set("parent", "")

        button.on_click(leave)

    def _chip(self, word: str, count: int) -> None:
        button = ui.button(f"{word} {count:,}", icon=SIGNS[word][0], on_click=lambda: self._toggle(word), color=None)
        button.props("flat dense no-caps unelevated").classes(f"mlw-chip mlw-{SIGNS[word][1]}")
        self._chips[word] = button
        self._wear(word, count)

    def _wear(self, word: str, count: int) -> None:
        chosen = word in self.view.status
        button = self._chips[word]
        button.set_text(f"{word} {count:,}")
        button.props(f"aria-pressed={'true' if chosen else 'false'}")
        button.classes(add="mlw-chosen") if chosen else button.classes(remove="mlw-chosen")
        button.set_visibility(bool(count) or chosen)

    def count(self, statuses: Mapping[str, int]) -> None:
        for word, count in statuses.items():
            self._wear(word, count)

    async def _toggle(self, word: str) -> None:
        chosen = self.view.status
        now = tuple(one for one in chosen if one != word) if word in chosen else (*chosen, word)
        await self._set("status", now)

    async def _set(self, name: str, value: Any) -> None:
        if getattr(self.view, name) != value:
            self.view = replace(self.view, **{name: value})
            await self._changed(self.view)

    def refuse(self, name: str, words: str | None) -> None:
        """Words under a field, or none any more."""
        self._fields[name].error = words
