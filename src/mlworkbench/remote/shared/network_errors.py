"""Detect network errors in a program's output. Unlike errors in the request, they may be temporary."""

from __future__ import annotations

import re

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Optional

# The patterns match messages of uv, py-rattler, and git.
CHECK_CONNECTION = "check this machine's internet connection"
NOT_FETCHED = "not-fetched"  # error code: a required download failed
_NETWORK_ERRORS = re.compile(
    r"error sending request|dns error|tcp connect error|timed out|request failed after|status server error"
    r"|connection (?:refused|reset|closed|aborted)|could not (?:connect|resolve host)",
    re.IGNORECASE,
)
# Messages that report the answer of a server. Package names in them may look like network errors.
_SERVER_ANSWERS = re.compile(  # output may wrap anywhere
    r"No\s+solution\s+found|was\s+not\s+found\s+in\s+the\s+package\s+registry|status\s+client\s+error"
)
_LABEL = re.compile(r"\A(?:error|cause|caused by): ", re.IGNORECASE)
_URL = re.compile(r"https?://[^\s`()]+")


def find_network_error(text: str) -> Optional[str]:
    """Return the last cause that a program printed, or None if it is not a network error."""
    if _SERVER_ANSWERS.search(text) or not _NETWORK_ERRORS.search(text):
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("hint")]
    return _LABEL.sub("", lines[-1])


def find_url(text: str) -> Optional[str]:
    """Return the URL that a program failed to fetch: the first one in its output."""
    match = _URL.search(text)
    return match.group() if match else None
