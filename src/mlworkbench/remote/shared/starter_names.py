"""Names of starters, and the states that they report."""

from __future__ import annotations

DETACHED = "detached"
PLUGIN = "plugin:"  # before the name of a file in plugins/
RUNNING, ENDED, UNKNOWN = "running", "ended", "unknown"  # states that mlw itself names; a scheduler may say "queued"
