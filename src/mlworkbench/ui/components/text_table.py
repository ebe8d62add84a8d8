"""Text tables, diffs, and scatter plots. The browser renders them, so thousands of cells are fast."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui.element import Element

from ...sanitize import plain

_MAX_LINES, _MAX_LINE_LENGTH, _MAX_CHARACTERS = 4000, 2000, 1_000_000  # maximum size of a diff


class TextTable(Element, component="sheet.js"):
    """Table of strings. ``head`` contains titles with optional URLs.

    The first cell of a row is its heading, unless ``bare`` is set.
    """

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
        self._props["head"] = [list(row) for row in head]
        self._props["rows"] = [list(row) for row in rows]
        self._props["links"] = list(links)  # URLs of the row headings
        self.update()


class DiffLines(Element, component="difflines.js"):
    """Lines of a diff, up to the maximum size. Their text is untrusted."""

    def __init__(self, label: str, lines: Sequence[str]) -> None:
        super().__init__()
        shown: list[str] = []
        remaining = _MAX_CHARACTERS
        for line in lines[:_MAX_LINES]:
            shown.append("\t".join(plain(piece, _MAX_LINE_LENGTH) for piece in line[:_MAX_LINE_LENGTH].split("\t")))
            remaining -= len(shown[-1])
            if remaining < 0:
                break
        self._props["label"] = label
        self._props["lines"] = shown
        self._props["more"] = len(lines) - len(shown)


class Scatter(Element, component="scatter.js"):
    """Plot with a point for each run or, with ``parallel``, a line for each run across all axes."""

    def __init__(self, label: str, height: int = 320) -> None:
        super().__init__()
        self._props.update({"label": label, "height": height, "axes": [], "points": [], "parallel": False})

    def show(self, axes: Sequence[str], points: Sequence[dict[str, object]], *, parallel: bool = False) -> None:
        """Show the points. Each is ``{"id", "label", "values", "shade"}`` with a value for each axis."""
        self._props.update({"axes": list(axes), "points": list(points), "parallel": parallel})
        self.update()
