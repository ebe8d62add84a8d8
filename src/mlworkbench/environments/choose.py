"""Which environment a run gets: the same answer for submit, prepare and check."""

from __future__ import annotations

from ..config.keys import IN_CONTAINER, USES_CONDA, is_elsewhere
from ..errors import ConfigError
from ..model import Compute
from ..registry import load
from .site import Settled, Site


def is_managed(compute: Compute) -> bool:
    """Whether we make the environment. The original did so for containers and clusters, and so do we unless told."""
    if compute.user_managed_environment is None:
        return compute.type in USES_CONDA
    return not compute.user_managed_environment


def settle_environment(site: Site) -> Settled:
    """The environment for runs of a project on a target, found and checked; raises ConfigError if it will not do."""
    if is_managed(site.compute):
        name = "managed"
    elif site.locked:
        raise ConfigError(
            f"{site.compute.name} runs scripts with the Python that is there: no environment can be repeated on it",
            f"set userManagedEnvironment: false in aml_config/{site.compute.name}.compute",
        )
    else:
        kind, address = site.compute.type, site.compute.address
        name = "given" if kind in IN_CONTAINER or is_elsewhere(kind, address) else "existing"
    settled: Settled = load("environments", name)(site)
    return settled
