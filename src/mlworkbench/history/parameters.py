"""A script's parameters, as far as its arguments tell: ``--name value`` and ``--name=value``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from ..model import Run

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


def of_run(run: Run) -> dict[str, Any]:
    """From its arguments, its place in a sweep, and what the script told, which counts most. None is a switch."""
    given = {**parameters(run.spec.entry.arguments), **run.spec.varied}
    for name in run.params:  # told as argparse has it: --batch-size is batch_size
        for spelling in (name.replace("_", "-"), name):
            given.pop(spelling, None)
    return {**given, **run.params}


def text(value: Any) -> str | None:
    """A parameter as a text; lists and the like as JSON."""
    if value is None or isinstance(value, str):
        return value
    return str(value) if isinstance(value, (bool, int, float)) else json.dumps(value)


def number(told: Any) -> float | int | None:
    """The number that a parameter is; a switch is 1, as true is."""
    if told is None:
        return 1
    try:
        value = float(told)
    except (ValueError, TypeError, OverflowError):
        return None
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
