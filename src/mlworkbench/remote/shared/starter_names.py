"""Names of starters, and the states that starters report."""

from __future__ import annotations

DETACHED = "detached"
SLURM = "slurm"
PLUGIN = "plugin:"  # followed by a file name in plugins/
QUEUED, RUNNING, ENDED, UNKNOWN = "queued", "running", "ended", "unknown"  # states of a scheduler's job
