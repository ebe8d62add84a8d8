"""Dialog for choosing the columns of a run list: properties, parameters, and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nicegui import ui

from ...sanitize import plain
from .run_dialogs import dialog_buttons, titled_dialog
from .run_filter import RUN_COLUMNS

_MAX_BOXES = 60  # maximum number of checkboxes per group
_TITLES = {"run": "Run", "params": "Parameters", "metrics": "Metrics"}
_VALUE_PREFIXES = ("params.", "metrics.")


async def choose_columns(names: Mapping[str, Sequence[str]], shown: Sequence[str]) -> tuple[str, ...] | None:
    """Return the chosen keys in display order, () for the default columns, or None if canceled."""
    with titled_dialog("Columns") as dialog:
        chooser = ColumnChooser(names, shown)
        button = ui.button("Default columns", on_click=lambda: dialog.submit("default"), color=None)
        button.props("flat dense no-caps").classes("mlw-action self-start")
        dialog_buttons(dialog, "Show")
    answer = await dialog
    if not answer:
        return None
    return () if answer == "default" else chooser.chosen


class ColumnChooser:
    """Searchable, grouped checkboxes. Names with the same prefix are collapsed."""

    def __init__(self, names: Mapping[str, Sequence[str]], shown: Sequence[str]) -> None:
        self._shown = tuple(shown)
        self._chosen = dict.fromkeys(shown)
        self._labels = {"run": {key: label for key, (label, _, _) in RUN_COLUMNS.items()}}
        for kind in ("params", "metrics"):
            keys = (
                *(name for name in shown if name.startswith(f"{kind}.")),
                *(f"{kind}.{name}" for name in names[kind]),
            )
            self._labels[kind] = {key: key.partition(".")[2] for key in dict.fromkeys(keys)}
        field = ui.input("Search columns").props("outlined dense clearable debounce=200 autofocus type=search")
        field.on_value_change(lambda event: self._draw(str(event.value or "").strip().lower()))
        self._box = ui.element("div").classes("mlw-columns")
        self._draw("")

    @property
    def chosen(self) -> tuple[str, ...]:
        """The chosen keys. New parameters and metrics follow those shown, so that they are in view."""
        kept = [key for key in self._shown if key in self._chosen]
        new = [key for key in self._chosen if key not in self._shown]
        values = [key for key in new if key.startswith(_VALUE_PREFIXES)]
        last = max(
            (index for index, key in enumerate(kept) if key.startswith(_VALUE_PREFIXES)),
            default=kept.count("status") - 1,
        )
        return (*kept[: last + 1], *values, *kept[last + 1 :], *(key for key in new if key not in values))

    def _draw(self, text: str) -> None:
        self._box.clear()
        with self._box:
            for kind, title in _TITLES.items():
                matching = {key: label for key, label in self._labels[kind].items() if text in label.lower()}
                with ui.element("fieldset").classes("mlw-columns-group"):
                    with ui.element("legend"):
                        ui.label(title)
                    if not matching:
                        ui.label("No matches" if text else "None in these runs").classes("mlw-faint")
                    self._draw_groups(matching, folded=not text)

    def _draw_groups(self, labels: Mapping[str, str], folded: bool) -> None:
        groups: dict[str, list[str]] = {}
        for key, label in labels.items():
            groups.setdefault(label.partition("/")[0] if folded and "/" in label else "", []).append(key)
        for prefix in [name for name in groups if name and len(groups[name]) == 1]:
            groups.setdefault("", []).extend(groups.pop(prefix))
        self._draw_boxes(groups.pop("", []), labels)
        for prefix, keys in groups.items():
            count = sum(key in self._chosen for key in keys)
            title = f"{plain(prefix, 60)}/… ({len(keys)}{f', {count} shown' if count else ''})"
            fold = ui.expansion(title).props("dense").classes("mlw-columns-fold")
            with fold, ui.element("div").classes("mlw-columns-folded"):
                self._draw_boxes(keys, labels)

    def _draw_boxes(self, keys: Sequence[str], labels: Mapping[str, str]) -> None:
        for key in keys[:_MAX_BOXES]:
            box = ui.checkbox(plain(labels[key], 60), value=key in self._chosen).props("dense")
            box.on_value_change(lambda event, key=key: self._set(key, bool(event.value)))
        if len(keys) > _MAX_BOXES:
            ui.label(f"and {len(keys) - _MAX_BOXES:,} more; search to find them").classes("mlw-faint")

    def _set(self, key: str, is_shown: bool) -> None:
        if is_shown:
            self._chosen[key] = None
        else:
            self._chosen.pop(key, None)
