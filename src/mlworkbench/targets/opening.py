"""A target by its type: built in, or from a plugin."""

from __future__ import annotations

from ..model import Compute
from ..paths import UserPaths
from ..registry import load
from .target import Target


def open_target(compute: Compute, paths: UserPaths) -> Target:
    """Ready to be asked; nobody is connected to yet."""
    target: Target = load("targets", compute.type)(compute, paths)
    return target
