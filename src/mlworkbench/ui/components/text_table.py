"""A plain table of words, and a text as ``diff -u`` has it: the browser draws them, so thousands of cells are quick."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui.element import Element

from ...report.plain import plain

_LINES, _LONGEST, _LETTERS = 4000, 2000, 1_000_000  # of a difference


class Sheet(Element, component="sheet.js"):
    """``head``: titles, with an address where there is one; the first cell of a row is its title, unless ``bare``."""

    def __init__(
        self,
        label: str,
        head: Sequence[tuple[str, str]] = (),
        rows: Sequence[Sequence[str]] = (),
        links: Sequence[str] = (),
        bare: bool = False,
    ) -> None:
        super().__init__()
        self._props["label"] = label
        self._props["bare"] = bare
        self.show(head, rows, links)

    def show(self, head: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], links: Sequence[str] = ()) -> None:
        self._props["head"] = [list(one) for one in head]
        self._props["rows"] = [list(one) for one in rows]
        self._props["links"] = list(links)  # of the titles of rows
        self.update()


class DiffLines(Element, component="difflines.js"):
    """Lines with + and - before them, as many as can be looked at. They come from files of any kind."""

    def __init__(self, label: str, lines: Sequence[str]) -> None:
        super().__init__()
        shown: list[str] = []
        left = _LETTERS
        for line in lines[:_LINES]:
            shown.append("\t".join(plain(piece, _LONGEST) for piece in line[:_LONGEST].split("\t")))
            left -= len(shown[-1])
            if left < 0:
                break
        self._props["label"] = label
        self._props["lines"] = shown
        self._props["more"] = len(lines) - len(shown)


class Scatter(Element, component="scatter.js"):
    """Points, one for each run; or, with several axes, a line for each run through all of them."""

    def __init__(self, label: str, height: int = 320) -> None:
        super().__init__()
        self._props.update({"label": label, "height": height, "axes": [], "points": [], "parallel": False})

    def show(self, axes: Sequence[str], points: Sequence[dict[str, object]], *, parallel: bool = False) -> None:
        """``points``: ``{"id", "label", "values"}`` with a value for each axis."""
        self._props.update({"axes": list(axes), "points": list(points), "parallel": parallel})
        self.update()
