"""``type: cluster``: the driver on an edge node reached by SSH, or on this machine; the work on Spark's executors."""

from __future__ import annotations

from ..model import Compute
from ..paths import UserPaths
from .local import local
from .remote import remote
from .target import Target


def cluster(compute: Compute, paths: UserPaths) -> Target:
    return remote(compute, paths) if compute.address is not None else local(compute, paths)
