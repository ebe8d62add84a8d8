"""Code editor with syntax highlighting, problem markers, and Ctrl-S."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui
from nicegui.element import Element

from ...model import Problem
from ...sanitize import plain
from ..queries.files import language

Callback = Callable[[], Any]


class EditorGuard(Element, component="guard.js"):
    """Browser part of the editor: handles Ctrl-S and keeps edits while the server is unreachable."""

    def __init__(self, editor: ui.codemirror, path: str, storage_key: str) -> None:
        super().__init__()
        self._props["editor"] = editor.id
        self._props["label"] = f"Text of {plain(path, 200)}"
        self._props["place"] = storage_key


class Editor:
    """Code editor. Calls ``on_change`` after each change of the text, and ``on_save`` on Ctrl-S."""

    def __init__(self, key: str, path: str, text: str, on_change: Callback, on_save: Callback) -> None:
        language_name: Any = language(path)
        indent = "  " if language_name in ("YAML", "JSON") else "    "
        self._mirror = ui.codemirror(text, language=language_name, indent=indent, on_change=on_change).classes(
            "mlw-editor"
        )
        guard = EditorGuard(self._mirror, path, f"mlw-draft-{key}-{path}")
        guard.on("save", on_save)
        guard.on("found", self._restore)

    @property
    def value(self) -> str:
        return self._mirror.value or ""

    @value.setter
    def value(self, text: str) -> None:
        self._mirror.value = text

    def reveal(self, line: int) -> None:
        if 1 <= line <= self._line_count():
            self._mirror.reveal_line(line)

    def mark(self, problems: list[Problem]) -> None:
        """Mark the lines that have problems. The most severe problem determines a line's color."""
        worst: dict[int, str] = {}
        tooltips: dict[int, str] = {}
        for problem in problems:
            line = min(problem.line or 0, self._line_count())
            if line < 1:
                continue
            worst[line] = "error" if "error" in (problem.severity, worst.get(line)) else problem.severity
            tooltips[line] = "\n".join(filter(None, (tooltips.get(line), problem.message, problem.hint)))
        marks = [{"kind": "line", "line": line, "class": f"mlw-line-{kind}"} for line, kind in sorted(worst.items())]
        if self._mirror.decorations != marks:
            self._mirror.decorations = marks
            self._mirror.line_tooltips = tooltips

    def _line_count(self) -> int:
        return self.value.count("\n") + 1

    def _restore(self, event: Any) -> None:
        """Restore text that was typed while the server was unreachable."""
        if isinstance(event.args, str):
            self.value = event.args
            ui.notify("restored edits made while the server was unreachable")
