"""Options of ours behind the script: they are the script's, which may well be a slip."""

from __future__ import annotations

from pathlib import Path

from ..model import Entry

# Those that change where or how a run goes on; a script with an option of the same name says so in its text.
_OURS = frozenset({"--gpus", "--detach", "--dry-run", "--run-configuration", "--secret", "--timeout"})
_LARGEST = 1 << 20


def misplaced(root: Path, entry: Entry) -> str | None:
    """Words for the user, or None: the first such option that the script does not seem to know."""
    words = [word.partition("=")[0] for word in entry.arguments]
    found = [word for word in words if word in _OURS]
    if not found or entry.kind != "script":
        return None
    try:
        with open(root / entry.name, "rb") as file:
            text = file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return None
    strange = next((word for word in found if word not in text and word[2:].replace("-", "_") not in text), None)
    if strange is None:
        return None
    return f"{strange} after {entry.name} is passed to the script; put options of mlw before the script"
