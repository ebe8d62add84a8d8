"""A plain table of words, and a text as ``diff -u`` has it: the browser draws them, so thousands of cells are quick."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui.element import Element


class Sheet(Element, component="sheet.js"):
    """``head``: titles, with an address where there is one; of each row the first cell is its title."""

    def __init__(
        self, label: str, head: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], links: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self._props["label"] = label
        self._props["head"] = [list(one) for one in head]
        self._props["rows"] = [list(one) for one in rows]
        self._props["links"] = list(links)  # of the titles of rows


class DiffLines(Element, component="difflines.js"):
    """Lines with + and - before them."""

    def __init__(self, label: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._props["label"] = label
        self._props["lines"] = list(lines)


class Scatter(Element, component="scatter.js"):
    """Points, one for each run; or, with several axes, a line for each run through all of them."""

    def __init__(self, label: str, height: int = 320) -> None:
        super().__init__()
        self._props.update({"label": label, "height": height, "axes": [], "points": [], "parallel": False})

    def show(self, axes: Sequence[str], points: Sequence[dict[str, object]], *, parallel: bool = False) -> None:
        """``points``: ``{"id", "label", "values"}`` with a value for each axis."""
        self._props.update({"axes": list(axes), "points": list(points), "parallel": parallel})
        self.update()
