"""The choice of columns: a run's own facts, its parameters, its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nicegui import ui

from ...report.plain import plain
from .rundialogs import answers_of, asking
from .runfilter import OWN_COLUMNS

_SHOWN = 60  # names of one group that have a box
_TITLES = {"own": "Run", "params": "Parameters", "metrics": "Metrics"}
_VALUES = ("params.", "metrics.")


async def choose_columns(names: Mapping[str, Sequence[str]], shown: Sequence[str]) -> tuple[str, ...] | None:
    """The keys in the order in which they stand, none for the usual ones; None if it was left as it is."""
    with asking("Columns") as dialog:
        chooser = Chooser(names, shown)
        usual = ui.button("Default columns", on_click=lambda: dialog.submit("usual"), color=None)
        usual.props("flat dense no-caps").classes("mlw-action self-start")
        answers_of(dialog, "Show")
    answer = await dialog
    if not answer:
        return None
    return () if answer == "usual" else chooser.chosen


class Chooser:
    """Boxes in groups; names that begin alike are folded, and a search finds them."""

    def __init__(self, names: Mapping[str, Sequence[str]], shown: Sequence[str]) -> None:
        self._shown = tuple(shown)
        self._chosen = dict.fromkeys(shown)
        self._labels = {"own": {key: label for key, (label, _, _) in OWN_COLUMNS.items()}}
        for kind in ("params", "metrics"):
            every = (*(one for one in shown if one.startswith(f"{kind}.")), *(f"{kind}.{one}" for one in names[kind]))
            self._labels[kind] = {key: key.partition(".")[2] for key in dict.fromkeys(every)}
        field = ui.input("Search columns").props("outlined dense clearable debounce=200 autofocus type=search")
        field.on_value_change(lambda event: self._draw(str(event.value or "").strip().lower()))
        self._place = ui.element("div").classes("mlw-columns")
        self._draw("")

    @property
    def chosen(self) -> tuple[str, ...]:
        """New values stand beside those that were there: at the end nobody would see them."""
        kept = [one for one in self._shown if one in self._chosen]
        new = [one for one in self._chosen if one not in self._shown]
        values = [one for one in new if one.startswith(_VALUES)]
        last = max((at for at, one in enumerate(kept) if one.startswith(_VALUES)), default=kept.count("status") - 1)
        return (*kept[: last + 1], *values, *kept[last + 1 :], *(one for one in new if one not in values))

    def _draw(self, text: str) -> None:
        self._place.clear()
        with self._place:
            for kind, title in _TITLES.items():
                fitting = {key: label for key, label in self._labels[kind].items() if text in label.lower()}
                with ui.element("fieldset").classes("mlw-columns-group"):
                    with ui.element("legend"):
                        ui.label(title)
                    if not fitting:
                        ui.label("No matches" if text else "None in these runs").classes("mlw-faint")
                    self._groups(fitting, folded=not text)

    def _groups(self, labels: Mapping[str, str], folded: bool) -> None:
        groups: dict[str, list[str]] = {}
        for key, label in labels.items():
            groups.setdefault(label.partition("/")[0] if folded and "/" in label else "", []).append(key)
        for prefix in [one for one in groups if one and len(groups[one]) == 1]:
            groups.setdefault("", []).extend(groups.pop(prefix))
        self._boxes(groups.pop("", []), labels)
        for prefix, keys in groups.items():
            count = sum(key in self._chosen for key in keys)
            words = f"{plain(prefix, 60)}/… ({len(keys)}{f', {count} shown' if count else ''})"
            fold = ui.expansion(words).props("dense").classes("mlw-columns-fold")
            with fold, ui.element("div").classes("mlw-columns-folded"):
                self._boxes(keys, labels)

    def _boxes(self, keys: Sequence[str], labels: Mapping[str, str]) -> None:
        for key in keys[:_SHOWN]:
            box = ui.checkbox(plain(labels[key], 60), value=key in self._chosen).props("dense")
            box.on_value_change(lambda event, key=key: self._set(key, bool(event.value)))
        if len(keys) > _SHOWN:
            ui.label(f"and {len(keys) - _SHOWN:,} more; search to find them").classes("mlw-faint")

    def _set(self, key: str, wanted: bool) -> None:
        if wanted:
            self._chosen[key] = None
        else:
            self._chosen.pop(key, None)
