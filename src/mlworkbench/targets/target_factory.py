"""Opening a target: its type, built in or from a plugin, decides the host."""

from __future__ import annotations

from ..model import Compute
from ..paths import UserPaths
from .target import Target
from .types import compute_type


def open_target(compute: Compute, paths: UserPaths) -> Target:
    """Ready to be asked; nobody is connected to yet."""
    row = compute_type(compute.type)
    return Target(row.host(compute, paths), row)
