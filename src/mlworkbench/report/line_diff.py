"""Line differences in bounded time. ``difflib`` takes hours for two files of 256 kB that are made for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher

# Comparisons of lines: one or two seconds of work. Files that people write take some hundred thousands at most.
STEPS = 12_000_000
_OF_ONE = 6_000_000
_CONTEXT = 3  # lines around each change


class LineDiff:
    """Compares texts until its budget is used up: lines to show, which the caller counts, and steps."""

    def __init__(self, lines: int, steps: int = STEPS) -> None:
        self.lines = lines
        self._steps = steps

    def unified(self, old: Sequence[str], new: Sequence[str], old_name: str, new_name: str) -> list[str] | None:
        """Lines as ``diff -u`` prints them; None if it would take too long."""
        limit = min(self._steps, _OF_ONE)
        matcher = _Counted(old, new, limit)
        try:
            found = list(_lines(matcher, old, new))
        except _TooMany:
            self._steps -= max(0, limit)
            return None
        # What is shown counts, too: a thousand files of one long line each would be too much for a page.
        self._steps -= limit - matcher.left + sum(map(len, found))
        return [f"--- {old_name}", f"+++ {new_name}", *found] if found else []


def _lines(matcher: SequenceMatcher[str], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        yield f"@@ -{_range(group[0][1], group[-1][2])} +{_range(group[0][3], group[-1][4])} @@"
        for kind, old_start, old_end, new_start, new_end in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[old_start:old_end])
                continue
            yield from (f"-{line}" for line in old[old_start:old_end])
            yield from (f"+{line}" for line in new[new_start:new_end])


def _range(start: int, end: int) -> str:
    """First line, from 1, and number of lines; of an empty range the line before it."""
    count = end - start
    return f"{start + 1}" if count == 1 else f"{start + 1 if count else start},{count}"


class _TooMany(Exception):
    """The budget is used up."""


class _Counted(SequenceMatcher[str]):
    def __init__(self, old: Sequence[str], new: Sequence[str], steps: int) -> None:
        self.left = steps
        self._old = old
        super().__init__(None, old, new)
        self._places: dict[str, list[int]] = getattr(self, "b2j")

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """As in difflib, which visits every place of ``new`` with the same line, for every line of ``old``."""
        self.left -= sum(1 + len(self._places.get(line, ())) for line in self._old[alo:ahi])
        if self.left < 0:
            raise _TooMany
        return super().find_longest_match(alo, ahi, blo, bhi)
