"""A script's parameters, as far as its arguments tell: ``--name value`` and ``--name=value``."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_OPTION = re.compile(r"--?([^\W\d][^=\s]*)(?:=(.*))?", re.DOTALL)


def parameters(arguments: Sequence[str]) -> dict[str, str | None]:
    """Name → text; None for a switch. The last one counts, as argparse has it."""
    found: dict[str, str | None] = {}
    waiting: str | None = None
    for word in arguments:
        if word == "--":
            break
        option = _OPTION.fullmatch(word)
        if option:
            waiting = option[1] if option[2] is None else None
            found[option[1]] = option[2]
        elif waiting is not None:
            found[waiting] = word
            waiting = None
    return found


def number(text: str | None) -> float | int | None:
    """The number that a parameter is; a switch is 1, as true is."""
    if text is None:
        return 1
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
