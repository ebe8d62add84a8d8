"""Open this machine as a host."""

from __future__ import annotations

import os

from ..environments.existing import environment_without_mlw
from ..hosts.local_host import LocalHost
from ..paths import UserPaths
from .compute_type import DETACHED


def open_local(paths: UserPaths, starter: str = DETACHED) -> LocalHost:
    return LocalHost(paths.root, environment_without_mlw(os.environ), starter)
