"""An editor for one file: colours, what is wrong at its line, Ctrl-S."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui
from nicegui.element import Element

from ...model import Problem
from ...report.plain import plain
from ..answers.files import language

Told = Callable[[], Any]


class Guard(Element, component="guard.js"):
    """What the editor needs of the page around it."""

    def __init__(self, editor: ui.codemirror, path: str, place: str) -> None:
        super().__init__()
        self._props["editor"] = editor.id
        self._props["label"] = f"Text of {plain(path, 200)}"
        self._props["place"] = place


class Editor:
    """``value`` is what is in it; ``changed`` hears of every change by the user, ``save`` of Ctrl-S."""

    def __init__(self, key: str, path: str, text: str, changed: Told, save: Told) -> None:
        known: Any = language(path)
        indent = "  " if known in ("YAML", "JSON") else "    "
        self._mirror = ui.codemirror(text, language=known, indent=indent, on_change=changed).classes("mlw-editor")
        guard = Guard(self._mirror, path, f"mlw-draft-{key}-{path}")
        guard.on("save", save)
        guard.on("found", self._take)

    @property
    def value(self) -> str:
        return self._mirror.value or ""

    @value.setter
    def value(self, text: str) -> None:
        self._mirror.value = text

    def reveal(self, line: int) -> None:
        if 1 <= line <= self._lines():
            self._mirror.reveal_line(line)

    def mark(self, problems: list[Problem]) -> None:
        """Each at its line; the worst of a line gives the colour."""
        worst: dict[int, str] = {}
        words: dict[int, str] = {}
        for one in problems:
            line = min(one.line or 0, self._lines())
            if line < 1:
                continue
            worst[line] = "error" if "error" in (one.severity, worst.get(line)) else one.severity
            words[line] = "\n".join(filter(None, (words.get(line), one.message, one.hint)))
        marks = [{"kind": "line", "line": line, "class": f"mlw-line-{kind}"} for line, kind in sorted(worst.items())]
        if self._mirror.decorations != marks:
            self._mirror.decorations = marks
            self._mirror.line_tooltips = words

    def _lines(self) -> int:
        return self.value.count("\n") + 1

    def _take(self, event: Any) -> None:
        """What was typed while the server was away."""
        if isinstance(event.args, str):
            self.value = event.args
            ui.notify("restored edits made while the server was unreachable")
