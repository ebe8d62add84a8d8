"""``type: remotedocker``: a container on a machine reached by SSH."""

from __future__ import annotations

from ..model import Compute
from ..paths import UserPaths
from .remote import open_host
from .target import Target


def remotedocker(compute: Compute, paths: UserPaths) -> Target:
    return Target(open_host(compute, paths, contained=True), contained=True)
