"""Names of starters, and the states that starters report."""

from __future__ import annotations

DETACHED = "detached"
PLUGIN = "plugin:"  # followed by a file name in plugins/
RUNNING, ENDED, UNKNOWN = "running", "ended", "unknown"  # states defined by mlw; a scheduler may also report "queued"
