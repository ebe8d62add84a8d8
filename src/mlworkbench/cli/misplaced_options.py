"""Detect mlw options after the script, where they are passed to the script, probably by mistake."""

from __future__ import annotations

from pathlib import Path

from ..model import Entry

# Options that change where or how a run executes. A script that defines one contains its name.
_MLW_OPTIONS = frozenset(
    {"--gpus", "--launcher", "--detach", "--dry-run", "--run-configuration", "--secret", "--timeout"}
)
_MAX_SCRIPT_SIZE = 1 << 20


def misplaced_option_hint(root: Path, entry: Entry) -> str | None:
    """Return a hint for the first mlw option that the script does not seem to define, or None."""
    names = [name.partition("=")[0] for name in entry.arguments]
    options = [name for name in names if name in _MLW_OPTIONS]
    if not options or entry.kind != "script":
        return None
    try:
        with open(root / entry.name, "rb") as file:
            text = file.read(_MAX_SCRIPT_SIZE).decode("utf-8", "replace")
    except OSError:
        return None
    misplaced = next((name for name in options if name not in text and name[2:].replace("-", "_") not in text), None)
    if misplaced is None:
        return None
    return f"{misplaced} after {entry.name} is passed to the script; put options of mlw before the script"
