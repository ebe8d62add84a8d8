"""Form for a ``.compute`` or ``.runconfig`` file, with a field per key. The text is authoritative."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from ..queries.config_forms import Field, Form

Change = Callable[[str, str], Awaitable[None]]

_UNSET = ""


class ConfigForm:
    """Form that calls ``change`` with a key and its new value. An empty value removes the key."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._values: dict[str, str] = {}
        self._inputs: dict[str, Any] = {}
        self._layout: tuple[tuple[str, str], ...] = ()
        with ui.element("section").classes("mlw-form").props('aria-label="Form"') as self._box:
            pass

    def show(self, form: Form) -> None:
        """Show the values of ``form``. Existing fields are kept, and only their values are updated."""
        layout = tuple((field.name, field.kind) for field in form.fields)
        self._values = {field.name: field.value for field in form.fields}
        if form.trouble or layout != self._layout or not self._inputs:
            self._build(form)
            self._layout = () if form.trouble else layout
            return
        for field in form.fields:
            _update_widget(self._inputs[field.name], field)

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
                widget: Any = ui.select(_options(field), label=label, value=field.value)
            elif field.kind in ("lines", "pairs"):
                widget = ui.textarea(label, value=field.value).props("autogrow input-class=mlw-mono")
            else:
                widget = ui.input(label, value=field.value)
            widget.props("outlined dense")
            if field.kind not in ("flag", "choice"):
                widget.props("debounce=400")
                widget._props["placeholder"] = _placeholder(field)
            ui.label(_help(field)).classes("mlw-field-help")
        widget.on_value_change(lambda event, name=field.name: self._on_change(name, event.value))
        return widget

    async def _on_change(self, name: str, value: Any) -> None:
        """Report a change by the user. An unchanged value means that ``show`` set the field."""
        text = str(value or "")
        if text != self._values.get(name, ""):
            self._values[name] = text
            await self._change(name, text)


def _options(field: Field) -> dict[str, str]:
    default_label = f"(default: {field.default})" if field.default else "(not set)"
    more = () if not field.value or field.value in field.choices else (field.value,)
    return {_UNSET: default_label, **{choice: choice for choice in (*field.choices, *more)}}


def _update_widget(widget: Any, field: Field) -> None:
    if isinstance(widget, ui.select):
        if field.value not in widget.options:
            widget.set_options(_options(field))
        widget.value = field.value
    elif str(widget.value or "") != field.value and not _same_lines(str(widget.value or ""), field.value):
        widget.value = field.value


def _same_lines(typed: str, stored: str) -> bool:
    """Compare lines, ignoring blank ones, so that starting a new line does not reset the field."""
    return [line.strip() for line in typed.splitlines() if line.strip()] == stored.splitlines()


def _placeholder(field: Field) -> str:
    if field.default:
        return f"default: {field.default}"
    return {"lines": "one per line", "pairs": "NAME: value, one per line"}.get(field.kind, "not set")


def _help(field: Field) -> str:
    return f"{field.help}." if not field.help.endswith(".") else field.help
