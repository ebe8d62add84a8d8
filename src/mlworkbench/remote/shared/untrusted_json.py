"""Parse untrusted JSON: from a script, another machine, or a file that others can change."""

from __future__ import annotations

import json

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Union


def parse_json(text: Union[str, bytes]) -> Any:
    """Return the parsed value. Raise ValueError if the text is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
