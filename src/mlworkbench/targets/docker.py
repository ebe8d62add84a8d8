"""``type: docker``: a container on this machine."""

from __future__ import annotations

from ..model import Compute
from ..paths import UserPaths
from .local import local
from .target import Target


def docker(compute: Compute, paths: UserPaths) -> Target:
    return Target(local(compute, paths).host, contained=True)
