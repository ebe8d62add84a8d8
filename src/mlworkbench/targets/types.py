"""Compute types: one row per value of ``type:`` in a ``.compute`` file.

A row defines where runs of the type execute, how they start, which keys its file has, and which
features it supports. All other modules read the row and never compare type names. Built-in types
and plugin types are entry points in the same group, ``mlworkbench.targets``. To add a type, add a
row, and a starter if the type needs one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from ..config.compute_keys import ALL_KEYS, COMMON_KEYS, CONTAINER_KEYS, SPARK_KEYS, SSH_KEYS
from ..config.key import Key
from ..errors import ConfigError, UnknownName
from ..plugin_registry import known, load

if TYPE_CHECKING:
    from ..hosts.host import Host
    from ..model import Compute
    from ..paths import UserPaths

    HostFactory: TypeAlias = Callable[[Compute, UserPaths], Host]

DETACHED = "detached"  # the starter that forks the supervisor on the host and leaves it running
IMAGE, MASTER = "image", "master"  # options of attach that only some types support


class Wrapper(Enum):
    """The wrapper around the command of a run."""

    CONTAINER = "container"


class Feature(Enum):
    """A feature of a compute type."""

    THIS_MACHINE = "this machine"  # the host is this machine, unless the .compute file has an address
    MANAGED_ENVIRONMENTS = "managed environments"  # mlw builds the environment unless the .compute file opts out
    GPU_LEASES = "GPU leases"  # runs use GPUs of the host, which mlw reserves for them
    SPARK = "Spark"  # the script is the driver of a Spark cluster


@dataclass(frozen=True)
class AttachForm:
    """Values that ``mlw computetarget attach`` and the attach dialog ask for, besides the login."""

    label: str  # description in the dialog: where runs execute
    options: tuple[str, ...] = ()  # IMAGE, MASTER


@dataclass(frozen=True)
class ComputeType:
    """One compute type."""

    name: str  # value of ``type:`` in the .compute file
    summary: str
    host: HostFactory
    starter: str = DETACHED  # name, or absolute path of a plugin's Python file, which is uploaded with the agent
    wrapper: Wrapper | None = None
    keys: tuple[Key, ...] = ()  # keys of its .compute file, besides COMMON_KEYS
    attach: AttachForm | None = None  # None: cannot be attached
    features: frozenset[Feature] = frozenset()
    aliases: tuple[str, ...] = ()

    @property
    def contained(self) -> bool:
        """Whether runs execute in a container."""
        return self.wrapper is Wrapper.CONTAINER

    def has(self, feature: Feature) -> bool:
        return feature in self.features

    def has_key(self, key: Key) -> bool:
        """Return whether a key has an effect on targets of this type."""
        return any(key.name == other.name for other in (*COMMON_KEYS, *self.keys))

    def requires(self, key: Key) -> bool:
        return any(key.name == other.name and other.required for other in self.keys)

    @property
    def own_keys(self) -> tuple[Key, ...]:
        """Keys that no built-in type has. Their values are in ``Compute.settings``."""
        names = {key.name for key in ALL_KEYS}
        return tuple(key for key in self.keys if key.name not in names)

    def asks(self, option: str) -> bool:
        """Return whether attach supports this option for the type."""
        return self.attach is not None and option in self.attach.options


# -- hosts -----------------------------------------------------------------------------------------
# Host modules are imported only when a target is opened; reading a configuration file does not need them.


def local_host(compute: Compute, paths: UserPaths) -> Host:
    """Return this machine."""
    from .open_local import open_local  # noqa: PLC0415

    return open_local(paths, type_of(compute).starter)


def ssh_host(compute: Compute, paths: UserPaths) -> Host:
    """Return the machine at ``address``, reached over SSH."""
    from .open_remote import open_host  # noqa: PLC0415

    return open_host(compute, paths)


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

BUILT_IN = (LOCAL, DOCKER, REMOTE, REMOTEDOCKER, CLUSTER)
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
    if row.name != name or (row.starter != DETACHED and not os.path.isabs(row.starter)):
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
    return not (is_elsewhere(compute) or row.contained or row.has(Feature.SPARK))
