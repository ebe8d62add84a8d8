"""Markdown output of measurements: lines, sections, and one file for each subject."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

_HEAD = ("what", "value", "beside it, same run", "ratio", "aim", "")


@dataclass(frozen=True)
class Line:
    """One figure. ``met`` is None if there is no target value."""

    what: str
    value: str
    beside: str = ""
    ratio: str = ""
    aim: str = ""
    met: bool | None = None

    def cells(self) -> tuple[str, ...]:
        verdict = "" if self.met is None else "met" if self.met else "**missed**"
        return self.what, self.value, self.beside, self.ratio, self.aim, verdict


@dataclass
class Section:
    """The figures of one module, and the context that a reader needs."""

    title: str
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        parts = [f"## {self.title}", "", _row(_HEAD), _row(["---"] * len(_HEAD))]
        parts += [_row(line.cells()) for line in self.lines]
        if self.notes:
            parts += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(parts) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def page(title: str, facts: Sequence[str], sections: Sequence[Section]) -> str:
    """Return the text of the whole file."""
    head = [f"# {title}", "", "Made by `make bench`; not edited by hand.", "", *(f"- {fact}" for fact in facts), ""]
    return "\n".join(head) + "\n" + "\n".join(section.markdown() for section in sections)


# -- formatting of numbers -----------------------------------------------------------------------------


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def ms(seconds: float) -> str:
    return f"{seconds * 1000:,.{1 if abs(seconds) < 0.01 else 0}f} ms"


def time_of(values: Sequence[float]) -> str:
    """Format the median and the minimum, which is least disturbed by other work on the machine."""
    return f"{ms(median(values))} (min {ms(min(values))})"


def rate_of(values: Sequence[float]) -> str:
    """Format the median and the best rate in bytes per second."""
    return f"{median(values) / 1e6:,.0f} MB/s (best {max(values) / 1e6:,.0f})"


def mb(count: float) -> str:
    return f"{count / 1e6:,.1f} MB"


def times(ratio: float) -> str:
    return f"{ratio:.1f}×" if ratio < 10 else f"{ratio:.0f}×"
