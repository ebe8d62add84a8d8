"""This machine as a host."""

from __future__ import annotations

import os

from ..environments.existing import own_environment_left
from ..hosts.local import LocalHost
from ..paths import UserPaths
from .types import DETACHED


def open_local(paths: UserPaths, starter: str = DETACHED) -> LocalHost:
    return LocalHost(paths.root, own_environment_left(os.environ), starter)
