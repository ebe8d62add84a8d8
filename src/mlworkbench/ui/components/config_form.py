"""The form beside a ``.compute`` or ``.runconfig``: a field for each key. The text is the truth."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from ..answers.forms import Field, Form

Change = Callable[[str, str], Awaitable[None]]

_UNSAID = ""


class FormView:
    """``change`` hears the name of a key and what it is to be; "" takes it away."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._shown: dict[str, str] = {}
        self._inputs: dict[str, Any] = {}
        self._layout: tuple[tuple[str, str], ...] = ()
        with ui.element("section").classes("mlw-form").props('aria-label="Form"') as self._box:
            pass

    def show(self, form: Form) -> None:
        """What the text says now; fields that are there already only get their new values."""
        layout = tuple((field.name, field.kind) for field in form.fields)
        self._shown = {field.name: field.value for field in form.fields}
        if form.trouble or layout != self._layout or not self._inputs:
            self._build(form)
            self._layout = () if form.trouble else layout
            return
        for field in form.fields:
            _set(self._inputs[field.name], field)

    def _build(self, form: Form) -> None:
        self._box.clear()
        self._inputs = {}
        with self._box:
            if form.trouble:
                ui.label(form.trouble).classes("mlw-faint")
            for field in form.fields:
                self._inputs[field.name] = self._field(field)

    def _field(self, field: Field) -> Any:
        label = f"{field.name} *" if field.required else field.name
        with ui.column().classes("mlw-field"):
            if field.kind in ("flag", "choice"):
                made: Any = ui.select(_options(field), label=label, value=field.value)
            elif field.kind in ("lines", "pairs"):
                made = ui.textarea(label, value=field.value).props("autogrow input-class=mlw-mono")
            else:
                made = ui.input(label, value=field.value)
            made.props("outlined dense")
            if field.kind not in ("flag", "choice"):
                made.props("debounce=400")
                made._props["placeholder"] = _usual(field)
            ui.label(_help(field)).classes("mlw-field-help")
        made.on_value_change(lambda event, name=field.name: self._heard(name, event.value))
        return made

    async def _heard(self, name: str, value: Any) -> None:
        """A value that the text says already did not come from the user."""
        text = str(value or "")
        if text != self._shown.get(name, ""):
            self._shown[name] = text
            await self._change(name, text)


def _options(field: Field) -> dict[str, str]:
    usual = f"(default: {field.default})" if field.default else "(not set)"
    more = () if not field.value or field.value in field.choices else (field.value,)
    return {_UNSAID: usual, **{word: word for word in (*field.choices, *more)}}


def _set(made: Any, field: Field) -> None:
    if isinstance(made, ui.select):
        if field.value not in made.options:
            made.set_options(_options(field))
        made.value = field.value
    elif str(made.value or "") != field.value and not _same_lines(str(made.value or ""), field.value):
        made.value = field.value


def _same_lines(one: str, other: str) -> bool:
    """Somebody who is about to type the next line is not interrupted."""
    return [line.strip() for line in one.splitlines() if line.strip()] == other.splitlines()


def _usual(field: Field) -> str:
    if field.default:
        return f"default: {field.default}"
    return {"lines": "one per line", "pairs": "NAME: value, one per line"}.get(field.kind, "not set")


def _help(field: Field) -> str:
    return f"{field.help}." if not field.help.endswith(".") else field.help
