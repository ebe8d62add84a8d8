"""Event numbers and the name of their writer, used by both client and target."""

from __future__ import annotations

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any

WRITER = "sup"  # writer of all supervisor events
_MAX_EVENTS = 2**52


def check_seq(seq: Any) -> int:
    """Return the event number if it is valid and leaves room for the next one. Raise ValueError otherwise."""
    if type(seq) is not int or not 0 <= seq < _MAX_EVENTS:
        raise ValueError("invalid event number")
    return seq
