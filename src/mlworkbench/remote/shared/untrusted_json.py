"""Parsing of untrusted JSON: from a script, another machine, or a file that others can change."""

from __future__ import annotations

import json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Union


def parse_json(text: Union[str, bytes]) -> Any:
    """The value. Raises ValueError for everything that is wrong with the text, also if it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
