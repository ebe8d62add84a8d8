"""Compute types: one row per value of ``type:`` in a ``.compute`` file.

A row (``compute_type.py``) defines where runs of the type execute, how they start, which keys its
file has, and which features it supports. All other modules read the row and never compare type
names. Built-in types and plugin types are entry points in the same group, ``mlworkbench.targets``.
To add a type, add a row, and a starter if the type needs one.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from ..config.compute_keys import CONTAINER_KEYS, SLURM_KEYS, SPARK_KEYS, SSH_KEYS
from ..errors import ConfigError, UnknownName
from ..plugin_registry import known, load
from .compute_type import BUILT_IN_STARTERS, DETACHED

# "as": other modules and plugins import these names from here.
from .compute_type import IMAGE as IMAGE
from .compute_type import JOB as JOB
from .compute_type import MASTER as MASTER
from .compute_type import SLURM_STARTER as SLURM_STARTER
from .compute_type import AttachForm as AttachForm
from .compute_type import ComputeType as ComputeType
from .compute_type import Feature as Feature
from .compute_type import Wrapper as Wrapper

if TYPE_CHECKING:
    from ..hosts.host import Host
    from ..model import Compute
    from ..paths import UserPaths

# -- hosts -----------------------------------------------------------------------------------------
# Host modules are imported only when a target is opened; reading a configuration file does not need them.


def local_host(compute: Compute, paths: UserPaths) -> Host:
    """Return this machine."""
    from .open_local import open_local  # noqa: PLC0415

    return open_local(paths, type_of(compute).starter)


def ssh_host(compute: Compute, paths: UserPaths) -> Host:
    """Return the machine at ``address``, reached over SSH."""
    from .open_remote import open_host  # noqa: PLC0415

    return open_host(compute, type_of(compute), paths)


def ssh_or_local_host(compute: Compute, paths: UserPaths) -> Host:
    """Return the machine at ``address`` over SSH, or this machine if the file has no address."""
    return local_host(compute, paths) if compute.address is None else ssh_host(compute, paths)


# -- the table -------------------------------------------------------------------------------------

SSH_ADDRESS_KEYS = tuple(replace(key, required=key.name == "address") for key in SSH_KEYS)  # for an SSH-only host

LOCAL = ComputeType(
    "local",
    "Processes on this machine",
    local_host,
    features=frozenset({Feature.THIS_MACHINE, Feature.GPU_LEASES}),
)
DOCKER = ComputeType(
    "docker",
    "Containers on this machine",
    local_host,
    wrapper=Wrapper.CONTAINER,
    keys=CONTAINER_KEYS,
    features=frozenset({Feature.THIS_MACHINE, Feature.MANAGED_ENVIRONMENTS, Feature.GPU_LEASES}),
    aliases=("localdocker",),  # samples of the original use both names
)
REMOTE = ComputeType(
    "remote",
    "Processes on a machine reached over SSH",
    ssh_host,
    keys=SSH_ADDRESS_KEYS,
    attach=AttachForm("With Python on the machine"),
    features=frozenset({Feature.GPU_LEASES}),
)
REMOTEDOCKER = ComputeType(
    "remotedocker",
    "Containers on a machine reached over SSH",
    ssh_host,
    wrapper=Wrapper.CONTAINER,
    keys=(*SSH_ADDRESS_KEYS, *CONTAINER_KEYS),
    attach=AttachForm("In a container on the machine", (IMAGE,)),
    features=frozenset({Feature.MANAGED_ENVIRONMENTS, Feature.GPU_LEASES}),
)
CLUSTER = ComputeType(
    "cluster",
    "Drivers of a Spark cluster, on an edge node reached over SSH or on this machine",
    ssh_or_local_host,
    keys=(*SSH_KEYS, *SPARK_KEYS),
    attach=AttachForm("On a cluster", (MASTER,)),
    features=frozenset({Feature.THIS_MACHINE, Feature.MANAGED_ENVIRONMENTS, Feature.SPARK}),
)
SLURM = ComputeType(
    "slurm",
    "Jobs of a Slurm cluster, submitted on a login node reached over SSH or on this machine",
    ssh_or_local_host,
    starter=SLURM_STARTER,
    keys=(*SSH_KEYS, *SLURM_KEYS),
    attach=AttachForm("As a job of a Slurm cluster", (JOB,)),
    features=frozenset({Feature.THIS_MACHINE, Feature.MANAGED_ENVIRONMENTS, Feature.SCHEDULER_GPUS}),
)

BUILT_IN = (LOCAL, DOCKER, REMOTE, REMOTEDOCKER, CLUSTER, SLURM)
DEFAULT_ATTACH = REMOTEDOCKER  # if attach specifies no type; same default as the original


# -- lookup ----------------------------------------------------------------------------------------


def compute_type(name: str) -> ComputeType:
    """Return the type with this name.

    Raises ``UnknownName`` if it is not installed, and ``ConfigError`` if its plugin cannot be used.
    """
    if name in known("like"):
        raise _outdated(name)
    try:
        row = load("targets", name)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ConfigError(
            f"the plugin for compute type {name!r} cannot be loaded: {error}", "update or uninstall the plugin"
        ) from None
    if not isinstance(row, ComputeType):
        raise _outdated(name)
    if row.name != name or (row.starter not in BUILT_IN_STARTERS and not os.path.isabs(row.starter)):
        what = f"is named {row.name!r}" if row.name != name else f"has the starter {row.starter!r}"
        raise ConfigError(
            f"the plugin for compute type {name!r} registers a ComputeType that {what}",
            "its name must be that of the entry point, and its starter 'detached' or the absolute path of a file",
        )
    return row


def find_type(name: str) -> ComputeType | None:
    """Return the type with this name; None if it is not installed or cannot be used."""
    try:
        return compute_type(name)
    except (UnknownName, ConfigError):
        return None


def type_of(compute: Compute) -> ComputeType:
    """Return the type of a target.

    For a type that is not installed, return a placeholder that cannot be opened, so that its file
    can still be checked.
    """
    row = find_type(compute.type)
    return row or ComputeType(compute.type, "Not installed", _missing, features=frozenset({Feature.THIS_MACHINE}))


def _missing(compute: Compute, paths: UserPaths) -> Host:
    raise UnknownName("compute type", compute.type, known("targets"))


def _outdated(name: str) -> ConfigError:
    return ConfigError(
        f"the plugin for compute type {name!r} is outdated: its entry point in mlworkbench.targets must be a"
        " ComputeType (mlworkbench.like was removed)",
        "update the plugin; see 'Write a plugin' in the documentation",
    )


def is_built_in(name: str) -> bool:
    return any(row.name == name for row in BUILT_IN)


def attachable() -> tuple[ComputeType, ...]:
    """Return the types that can be attached: the default first, plugin types last."""
    names = [*(row.name for row in BUILT_IN), *sorted(name for name in known("targets") if not is_built_in(name))]
    rows = [row for row in map(find_type, names) if row is not None and row.attach is not None]
    return tuple(sorted(rows, key=lambda row: row is not DEFAULT_ATTACH))


def in_container(row: ComputeType) -> ComputeType | None:
    """Return the built-in type that runs in a container on the same kind of host, or None if there is none."""
    return next((other for other in BUILT_IN if other.contained and other.host is row.host), None)


# -- properties that depend on both the type and the .compute file -----------------------------------


def is_elsewhere(compute: Compute) -> bool:
    """Return whether a target is another machine."""
    row = type_of(compute)
    if row.has(Feature.THIS_MACHINE):
        return row.attach is not None and compute.address is not None
    return True


def needs_attach(compute: Compute) -> bool:
    """Return whether the user has to attach the machine before using it."""
    return type_of(compute).attach is not None and is_elsewhere(compute)


def is_local_process(compute: Compute) -> bool:
    """Return whether runs are plain processes on this machine."""
    row = type_of(compute)
    in_job = row.starter != DETACHED  # a scheduler chooses the machine
    return not (is_elsewhere(compute) or row.contained or row.has(Feature.SPARK) or in_job)
