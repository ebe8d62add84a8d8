"""Open a target. Its compute type, built in or from a plugin, determines the host."""

from __future__ import annotations

from ..model import Compute
from ..paths import UserPaths
from .target import Target
from .types import compute_type


def open_target(compute: Compute, paths: UserPaths) -> Target:
    """Return the target, without connecting to it."""
    row = compute_type(compute.type)
    return Target(row.host(compute, paths), row)
