"""Which environment a run gets: the same answer for submit, prepare and check."""

from __future__ import annotations

from ..config.keys import IN_CONTAINER, USES_CONDA, is_elsewhere
from ..errors import ConfigError
from ..model import Compute, RunConfig
from ..registry import known, load
from .site import Settled, Site

_OURS = ("existing", "given", "managed")


def is_managed(compute: Compute, runconfig: RunConfig | None = None) -> bool:
    """Whether we make the environment. The original did so for containers and clusters, and so do we unless told."""
    if runconfig is not None and runconfig.environment is not None:
        return False
    if compute.user_managed_environment is None:
        return compute.kind in USES_CONDA
    return not compute.user_managed_environment


def settle_environment(site: Site) -> Settled:
    """The environment for runs of a project on a target, found and checked; raises ConfigError if it will not do."""
    if site.runconfig.environment is not None:
        return _by_plugin(site.runconfig.environment, site)
    if is_managed(site.compute, site.runconfig):
        name = "managed"
    elif site.locked:
        raise ConfigError(
            f"{site.compute.name} runs scripts with the Python that is there: no environment can be repeated on it",
            f"set userManagedEnvironment: false in aml_config/{site.compute.name}.compute",
        )
    else:
        kind, address = site.compute.kind, site.compute.address
        name = "given" if kind in IN_CONTAINER or is_elsewhere(kind, address) else "existing"
    settled: Settled = load("environments", name)(site)
    return settled


def _by_plugin(name: str, site: Site) -> Settled:
    plugins = set(known("environments")) - set(_OURS)
    if name not in plugins:
        has = f"installed are {', '.join(sorted(plugins))}" if plugins else "none is installed"
        raise ConfigError(
            f"{site.runconfig.name}.runconfig asks for EnvironmentPlugin: {name}, and there is none of that name",
            f"install it where mlw is, or leave the line out; {has}",
        )
    settled: Settled = load("environments", name)(site)
    return settled
