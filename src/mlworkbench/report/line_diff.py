"""Line differences in bounded time. ``difflib`` can take hours for two adversarial files of 256 kB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher

# Line comparisons, about one or two seconds of work. Typical files need a few hundred thousand at most.
MAX_STEPS = 12_000_000
_MAX_FILE_STEPS = 6_000_000
_CONTEXT = 3  # context lines around each change


class LineDiff:
    """Text comparison with two budgets: steps, and displayed lines, which the caller counts."""

    def __init__(self, lines: int, steps: int = MAX_STEPS) -> None:
        self.lines = lines
        self._steps = steps

    def unified(self, old: Sequence[str], new: Sequence[str], old_name: str, new_name: str) -> list[str] | None:
        """Return lines in the format of ``diff -u``, or None if the budget is exceeded."""
        limit = min(self._steps, _MAX_FILE_STEPS)
        matcher = _BudgetedMatcher(old, new, limit)
        try:
            lines = list(_lines(matcher, old, new))
        except _BudgetExceeded:
            self._steps -= max(0, limit)
            return None
        # Each character of the output counts as a step: a thousand files with one long line each would be too much.
        self._steps -= limit - matcher.left + sum(map(len, lines))
        return [f"--- {old_name}", f"+++ {new_name}", *lines] if lines else []


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
    """Return the first line, counted from 1, and the number of lines, as in ``diff -u``.

    For an empty range, return the line before it.
    """
    count = end - start
    return f"{start + 1}" if count == 1 else f"{start + 1 if count else start},{count}"


class _BudgetExceeded(Exception):
    """Exception for an exceeded step budget."""


class _BudgetedMatcher(SequenceMatcher[str]):
    def __init__(self, old: Sequence[str], new: Sequence[str], steps: int) -> None:
        self.left = steps
        self._old = old
        super().__init__(None, old, new)
        self._places: dict[str, list[int]] = getattr(self, "b2j")

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Find a match within the budget. difflib visits each line of ``old`` and its occurrences in ``new``."""
        self.left -= sum(1 + len(self._places.get(line, ())) for line in self._old[alo:ahi])
        if self.left < 0:
            raise _BudgetExceeded
        return super().find_longest_match(alo, ahi, blo, bhi)
