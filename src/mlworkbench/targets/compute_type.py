"""The definition of a compute type. ``types.py`` contains the table of types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from ..config.compute_keys import ALL_KEYS, COMMON_KEYS
from ..config.key import Key

if TYPE_CHECKING:
    from ..hosts.host import Host
    from ..model import Compute
    from ..paths import UserPaths

    HostFactory: TypeAlias = Callable[[Compute, UserPaths], Host]

DETACHED = "detached"  # the starter that forks the supervisor on the host and leaves it running
SLURM_STARTER = "slurm"  # the starter that submits the supervisor as a job
BUILT_IN_STARTERS = (DETACHED, SLURM_STARTER)
# Options of attach that only some types support. JOB: the requirements of a scheduler's jobs, such as the partition.
IMAGE, MASTER, JOB = "image", "master", "job"


class Wrapper(Enum):
    """The wrapper around the command of a run."""

    CONTAINER = "container"


class Feature(Enum):
    """A feature of a compute type."""

    THIS_MACHINE = "this machine"  # the host is this machine, unless the .compute file has an address
    MANAGED_ENVIRONMENTS = "managed environments"  # mlw builds the environment unless the .compute file opts out
    GPU_LEASES = "GPU leases"  # runs use GPUs of the host, which mlw reserves for them
    SCHEDULER_GPUS = "scheduler GPUs"  # a scheduler allocates GPUs to runs, which neither wait nor reserve any
    SPARK = "Spark"  # the script is the driver of a Spark cluster


@dataclass(frozen=True)
class AttachForm:
    """Values that ``mlw computetarget attach`` and the attach dialog ask for, besides the login."""

    label: str  # description in the dialog: where runs execute
    options: tuple[str, ...] = ()  # IMAGE, MASTER, JOB


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
