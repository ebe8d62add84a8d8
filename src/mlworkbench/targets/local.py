"""``type: local``: this machine, detached, nothing around the command."""

from __future__ import annotations

import os
import sys

from ..environments.existing import path_without_own
from ..hosts.local import LocalHost
from ..model import Compute
from ..paths import UserPaths
from .target import Target


def local(compute: Compute, paths: UserPaths) -> Target:
    environment = {**os.environ, "PATH": path_without_own(os.environ)}
    if environment.get("VIRTUAL_ENV") == sys.prefix:
        del environment["VIRTUAL_ENV"]  # mlw's own, which the script must not take for its own
    return Target(LocalHost(paths.root, environment))
