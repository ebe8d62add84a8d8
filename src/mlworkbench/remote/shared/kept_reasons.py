"""Reasons that the target or client gives for not removing a file on a target."""

from __future__ import annotations

GOING = "going"  # a run that has not ended
UNFETCHED = "unfetched"  # a run whose log or outputs the client has not fetched
UNCOLLECTED = "uncollected"  # a run with outputs that are never fetched
CHECKPOINTS = "checkpoints"  # a run whose checkpoints the client has not downloaded
OTHER = "other"  # a run of another client
USED = "used"
UPLOADING = "uploading"
YOUNG_CODE = "young"
RECENT = "recent"  # a recently used environment
SHARED = "shared"  # caches and tools of environment builds
