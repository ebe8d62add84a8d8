"""The choice of columns: a run's own facts, its metrics, its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nicegui import ui

from ...report.plain import plain
from .rundialogs import answers_of, asking
from .runfilter import OWN_COLUMNS

_SHOWN = 60  # names of one kind that have a box of their own


async def choose_columns(names: Mapping[str, Sequence[str]], shown: Sequence[str]) -> tuple[str, ...] | None:
    """The keys in the order in which they stand; None if it was left as it is."""
    chosen = dict.fromkeys(shown)
    with asking("Columns") as dialog:
        with ui.element("div").classes("mlw-columns"):
            _group("Run", {key: label for key, (label, _, _) in OWN_COLUMNS.items()}, chosen)
            for title, kind in (("Metrics", "metrics"), ("Parameters", "params")):
                every = dict.fromkeys((*(one for one in shown if one.startswith(f"{kind}.")), *_keys(kind, names)))
                _group(title, {key: key.partition(".")[2] for key in every}, chosen)
        answers_of(dialog, "Show")
    if not await dialog:
        return None
    return tuple(chosen)


def _keys(kind: str, names: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{kind}.{name}" for name in names[kind]]


def _group(title: str, labels: Mapping[str, str], chosen: dict[str, None]) -> None:
    with ui.element("fieldset").classes("mlw-columns-group"):
        with ui.element("legend"):
            ui.label(title)
        if not labels:
            ui.label("none in these runs").classes("mlw-faint")
        for key, label in list(labels.items())[:_SHOWN]:
            box = ui.checkbox(plain(label, 60), value=key in chosen).props("dense")
            box.on_value_change(
                lambda event, key=key: chosen.update({key: None}) if event.value else chosen.pop(key, None)
            )
        if len(labels) > _SHOWN:
            _more(list(labels.items())[_SHOWN:], chosen)


def _more(rest: Sequence[tuple[str, str]], chosen: dict[str, None]) -> None:
    """Hundreds of names are for typing."""
    options = {key: plain(label, 60) for key, label in rest}
    field = ui.select(
        options, label="More", multiple=True, with_input=True, value=[one for one in options if one in chosen]
    )
    field.props("outlined dense use-chips").classes("w-full")

    def choose(value: Sequence[str]) -> None:
        for key in options:
            chosen.pop(key, None)
        chosen.update(dict.fromkeys(value))

    field.on_value_change(lambda event: choose(event.value or []))
