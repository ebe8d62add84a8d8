"""A target with a fixed CUDA version, and prebuilt environments that an administrator maintains."""

from __future__ import annotations

import os
import posixpath
from dataclasses import replace

from mlworkbench.environments.existing import environment_without_mlw
from mlworkbench.environments.selection_request import EnvironmentRequest, ResolvedEnvironment
from mlworkbench.errors import ConfigError
from mlworkbench.hosts.local_host import LocalHost
from mlworkbench.model import Compute, Interpreter
from mlworkbench.paths import UserPaths
from mlworkbench.targets.types import LOCAL

CUDA = "/opt/cuda-12/lib64"


def cuda_host(compute: Compute, paths: UserPaths) -> LocalHost:
    """This machine, with the CUDA 12 libraries first."""
    environment = environment_without_mlw(os.environ)
    before = environment.get("LD_LIBRARY_PATH")
    environment["LD_LIBRARY_PATH"] = f"{CUDA}:{before}" if before else CUDA
    return LocalHost(paths.root, environment)


# ``type: cuda12``: as ``type: local``, except for the host.
CUDA12 = replace(LOCAL, name="cuda12", summary="Processes on this machine, with CUDA 12", host=cuda_host)


def ready(site: EnvironmentRequest) -> ResolvedEnvironment:
    """``EnvironmentPlugin: ready``: use the environment in /opt/envs that READY_ENVIRONMENT names; build nothing."""
    name = site.runconfig.environment_variables.get("READY_ENVIRONMENT")
    if not name or "/" in name:
        raise ConfigError(
            f"{site.runconfig.name}.runconfig does not name a prebuilt environment",
            "set READY_ENVIRONMENT under EnvironmentVariables",
        )
    if site.locked is not None:
        raise ConfigError("a prebuilt environment can change: the run cannot be repeated exactly")
    prefix = posixpath.join(site.environ.get("READY_ENVIRONMENTS", "/opt/envs"), name)
    python = posixpath.join(prefix, "bin", "python")
    return ResolvedEnvironment(
        lock={"kind": "target", "python": python, "version": None, "ready": name},
        interpreter=Interpreter(python, (0, 0, 0), f"prebuilt environment {name}"),
        path=(posixpath.join(prefix, "bin"),),
        variables={"VIRTUAL_ENV": prefix},
        mounts=(prefix,),  # mounted read-only into containers, at the same path
    )
