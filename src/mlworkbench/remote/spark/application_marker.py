"""The marker file with the state of a run's Spark application.

A new supervisor continues from it, and the GPU observer reads the application ID from it.
"""

from __future__ import annotations

from ..shared.atomic_files import read_json
from ..shared.layout import RunFolder

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


def marker_path(run: RunFolder) -> str:
    """Return the path of the marker, outside the folder to which Spark and the script can write."""
    return run.spark + ".json"


def read_marker(run: RunFolder) -> Dict[str, Any]:
    return read_json(marker_path(run), "place", "data") or {}


def read_application_id(run: RunFolder) -> Optional[str]:
    """Return the ID of the current or last application."""
    application = (read_marker(run).get("data") or {}).get("app")
    return application if isinstance(application, str) else None
