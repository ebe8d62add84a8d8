"""The tree of a project's files. The page asks for the folders that are open, and sees by itself when they change."""

from __future__ import annotations

from nicegui.element import Element


class Tree(Element, component="tree.js"):
    """Emits ``open`` with the path of a file, and ``select`` with path and kind of what is marked."""

    def __init__(self, key: str, current: str, unsaved: list[str]) -> None:
        super().__init__()
        self._props["base"] = f"/api/projects/{key}"
        self._props["current"] = current
        self._props["unsaved"] = unsaved

    def show(self, path: str) -> None:
        """Mark this file, and open the folders above it."""
        self._props["current"] = path
        self.run_method("reveal", path)

    def mark_unsaved(self, paths: list[str]) -> None:
        if self._props["unsaved"] != paths:
            self._props["unsaved"] = paths
            self.update()

    def refresh(self) -> None:
        self.run_method("refresh")
