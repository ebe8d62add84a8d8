"""Numbers and writers of events, as both sides check them."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any

WRITER = "sup"  # of the events of every supervisor
_MOST_EVENTS = 2**52


def check_seq(seq: Any) -> int:
    """The number of an event. Raises ValueError for what no journal counts up to: the next number must be writable."""
    if type(seq) is not int or not 0 <= seq < _MOST_EVENTS:
        raise ValueError("invalid event number")
    return seq
