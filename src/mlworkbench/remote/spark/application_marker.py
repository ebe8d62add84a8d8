"""What a supervisor notes of an application beside the run, for the one that takes over and for who measures GPUs."""

from __future__ import annotations

from ..shared.files import read_json
from ..shared.layout import RunFolder

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


def note_of(run: RunFolder) -> str:
    """Not in the folder that Spark, and so the script, writes into."""
    return run.spark + ".json"


def read_note(run: RunFolder) -> Dict[str, Any]:
    return read_json(note_of(run), "place", "data") or {}


def application_of(run: RunFolder) -> Optional[str]:
    """Id of the application that runs now, or ran last."""
    found = (read_note(run).get("data") or {}).get("app")
    return found if isinstance(found, str) else None
