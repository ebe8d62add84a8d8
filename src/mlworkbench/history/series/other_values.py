"""Values that are no numbers, out of the lines that hold them: a long one was written in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ...remote.shared.untrusted import parse_json
from .lines import Other, decoded


class Value(NamedTuple):
    """One that is no number."""

    step: int | None
    time: float
    value: Any


def joined(others: Iterable[Other]) -> Iterator[Value]:
    """The values of one file, in order. A piece that fits nowhere is passed over."""
    first: Other | None = None
    whole: Any = None
    texts: list[str] = []  # pieces of a long text, put together once
    for other in others:
        if other.first:
            if first is not None:
                yield _value(first, whole, texts)
            first, whole, texts = other, _parsed(other.body), []
        elif first is not None and first.way is not None:
            piece = _parsed(other.body)
            if isinstance(whole, str) and isinstance(piece, str) and other.way == "[]":
                texts.append(piece)
            else:
                _put(whole, _parsed(other.way or "[]") or [], other.start, piece)
    if first is not None:
        yield _value(first, whole, texts)


def _parsed(text: str) -> Any:
    """The value; None if it is too deep for this caller, which may have less stack left than the one that wrote it."""
    try:
        return parse_json(text)
    except ValueError:
        return None


def _value(first: Other, whole: Any, texts: list[str]) -> Value:
    whole = "".join((whole, *texts)) if texts else whole
    try:
        # A row is a dict with any columns; only what is in it can be a number in disguise.
        value = {name: decoded(one) for name, one in whole.items()} if isinstance(whole, dict) else decoded(whole)
    except RecursionError:
        value = None if first.kind == "value" else {}
    return Value(first.step, first.time, value)


def _put(whole: Any, way: list[int], start: int, piece: list[Any] | str) -> None:
    """``way`` leads through lists to the list, or the text, of which this is what comes from ``start`` on."""
    place, parent = whole, None
    for at in way:
        if not isinstance(place, list) or at >= len(place):
            return
        parent, place = place, place[at]
    if isinstance(place, list) and isinstance(piece, list):
        del place[start:]
        place.extend(piece)
    elif isinstance(place, str) and isinstance(piece, str) and parent is not None:
        parent[way[-1]] = place[:start] + piece
