"""The spec of a run as its target reads it."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


def companion_settings(spec: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """What the run's framework tells one companion; None: the run does without that companion."""
    settings: Optional[Dict[str, Any]] = (spec.get("companions") or {}).get(name)
    if settings is None and name == "spark":
        settings = spec.get("spark") or None  # as written before there were companions
    return settings
