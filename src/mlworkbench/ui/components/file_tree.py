"""Tree of a project's files. The browser requests the open folders and polls them for changes."""

from __future__ import annotations

from nicegui.element import Element


class FileTree(Element, component="tree.js"):
    """File tree.

    Emits ``open`` with the path of a file, and ``select`` with the path and kind of the selected entry.
    """

    def __init__(self, key: str, current: str, unsaved: list[str]) -> None:
        super().__init__()
        self._props["base"] = f"/api/projects/{key}"
        self._props["current"] = current
        self._props["unsaved"] = unsaved

    def show(self, path: str) -> None:
        """Select the file at ``path`` and expand its parent folders."""
        self._props["current"] = path
        self.run_method("reveal", path)

    def mark_unsaved(self, paths: list[str]) -> None:
        if self._props["unsaved"] != paths:
            self._props["unsaved"] = paths
            self.update()

    def refresh(self) -> None:
        self.run_method("refresh")
