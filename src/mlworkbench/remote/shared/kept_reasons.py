"""Why something on a target is not removed: one word each, from the target or from the client that asks it."""

from __future__ import annotations

GOING = "going"  # a run that has not ended
UNFETCHED = "unfetched"  # a run whose log or outputs are not at the client
UNCOLLECTED = "uncollected"  # a run with outputs that never come to the client
OTHER = "other"  # a run of another client
USED = "used"
UPLOADING = "uploading"
YOUNG_CODE = "young"
RECENT = "recent"  # an environment that was used lately
SHARED = "shared"  # what environments are built from
