"""Whether a program complains of the way to somewhere else, not of what it was asked for: then trying again helps."""

from __future__ import annotations

import re

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Optional

# As uv, py-rattler and git say it.
CHECK_CONNECTION = "check this machine's internet connection"
NOT_FETCHED = "not-fetched"  # code: something elsewhere is needed, and this machine did not get it
_SIGNS = re.compile(
    r"error sending request|dns error|tcp connect error|timed out|request failed after|status server error"
    r"|connection (?:refused|reset|closed|aborted)|could not (?:connect|resolve host)",
    re.IGNORECASE,
)
# An answer, whatever it is: somebody was reached. Names of packages are in such texts, and may be any words.
_ANSWERED = re.compile(  # programs break their lines anywhere
    r"No\s+solution\s+found|was\s+not\s+found\s+in\s+the\s+package\s+registry|status\s+client\s+error"
)
_LABEL = re.compile(r"\A(?:error|cause|caused by): ", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^\s`()]+")


def why_not_reached(text: str) -> Optional[str]:
    """The last of the causes that a program names; None if it complains of something else."""
    if _ANSWERED.search(text) or not _SIGNS.search(text):
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("hint")]
    return _LABEL.sub("", lines[-1])


def address_in(text: str) -> Optional[str]:
    """What was to be fetched."""
    found = _ADDRESS.search(text)
    return found.group() if found else None
