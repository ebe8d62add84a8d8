"""The parameters of a script, from its arguments: ``--name value`` and ``--name=value``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from ..model import Run

_OPTION = re.compile(r"--?([^\W\d][^=\s]*)(?:=(.*))?", re.DOTALL)


def parse_arguments(arguments: Sequence[str]) -> dict[str, str | None]:
    """Return parameter values by name, None for a flag. As in argparse, the last occurrence counts."""
    result: dict[str, str | None] = {}
    pending: str | None = None
    for argument in arguments:
        if argument == "--":
            break
        option = _OPTION.fullmatch(argument)
        if option:
            pending = option[1] if option[2] is None else None
            result[option[1]] = option[2]
        elif pending is not None:
            result[pending] = argument
            pending = None
    return result


def run_parameters(run: Run) -> dict[str, Any]:
    """Return the parameters from the arguments, the sweep, and the script.

    Those from the script take precedence. The value of a flag is None.
    """
    result = {**parse_arguments(run.spec.entry.arguments), **run.spec.varied}
    for name in run.params:  # spelled as in argparse: --batch-size is batch_size
        for spelling in (name.replace("_", "-"), name):
            result.pop(spelling, None)
    return {**result, **run.params}


def text(value: Any) -> str | None:
    """Return a parameter as a string; lists and other structures are encoded as JSON."""
    if value is None or isinstance(value, str):
        return value
    return str(value) if isinstance(value, (bool, int, float)) else json.dumps(value)


def number(raw: Any) -> float | int | None:
    """Return the numeric value of a parameter. A flag is 1."""
    if raw is None:
        return 1
    try:
        value = float(raw)
    except (ValueError, TypeError, OverflowError):
        return None
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
