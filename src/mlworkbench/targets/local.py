"""``type: local``: this machine, detached, nothing around the command."""

from __future__ import annotations

import os

from ..environments.existing import own_environment_left
from ..hosts.local import LocalHost
from ..model import Compute
from ..paths import UserPaths
from .target import Target


def local(compute: Compute, paths: UserPaths) -> Target:
    return Target(LocalHost(paths.root, own_environment_left(os.environ)))
