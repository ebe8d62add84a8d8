"""Decode non-numeric values. Long values are stored in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ...remote.shared.untrusted_json import parse_json
from .metric_lines import OtherValue, decode_floats


class Value(NamedTuple):
    """A logged value that is not a number."""

    step: int | None
    time: float
    value: Any


def join_pieces(others: Iterable[OtherValue]) -> Iterator[Value]:
    """Yield the values of one file, in order. Skip pieces that do not fit their value."""
    first: OtherValue | None = None
    whole: Any = None
    texts: list[str] = []  # pieces of a long string, joined at the end
    for other in others:
        if other.first:
            if first is not None:
                yield _build_value(first, whole, texts)
            first, whole, texts = other, _parse(other.body), []
        elif first is not None and first.path is not None:
            piece = _parse(other.body)
            if isinstance(whole, str) and isinstance(piece, str) and other.path == "[]":
                texts.append(piece)
            else:
                _insert_piece(whole, _parse(other.path or "[]") or [], other.start, piece)
    if first is not None:
        yield _build_value(first, whole, texts)


def _parse(text: str) -> Any:
    """Parse JSON. Return None if it is nested too deeply for this process."""
    try:
        return parse_json(text)
    except ValueError:
        return None


def _build_value(first: OtherValue, whole: Any, texts: list[str]) -> Value:
    whole = "".join((whole, *texts)) if texts else whole
    try:
        # A row may have columns of any name, so only its values can be encoded floats.
        value = (
            {name: decode_floats(item) for name, item in whole.items()}
            if isinstance(whole, dict)
            else decode_floats(whole)
        )
    except RecursionError:
        value = None if first.kind == "value" else {}
    return Value(first.step, first.time, value)


def _insert_piece(whole: Any, path: list[int], start: int, piece: list[Any] | str) -> None:
    """Insert a piece at index ``start`` of the list or string that ``path`` selects in nested lists."""
    target, parent = whole, None
    for index in path:
        if not isinstance(target, list) or index >= len(target):
            return
        parent, target = target, target[index]
    if isinstance(target, list) and isinstance(piece, list):
        del target[start:]
        target.extend(piece)
    elif isinstance(target, str) and isinstance(piece, str) and parent is not None:
        parent[path[-1]] = target[:start] + piece
