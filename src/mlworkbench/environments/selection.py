"""Which environment a run gets: the same answer for submit, prepare and check."""

from __future__ import annotations

from ..errors import ConfigError
from ..model import Compute, RunConfig
from ..registry import known, load
from ..targets.types import Feature, is_elsewhere, type_of
from .site import Settled, Site

_OURS = ("existing", "given", "managed")


def is_managed(compute: Compute, runconfig: RunConfig | None = None) -> bool:
    """Whether we make the environment. The original did so for containers and clusters, and so do we unless told."""
    if runconfig is not None and runconfig.environment is not None:
        return False
    if compute.user_managed_environment is None:
        return type_of(compute).has(Feature.MANAGED_ENVIRONMENTS)
    return not compute.user_managed_environment


def settle_environment(site: Site) -> Settled:
    """The environment for runs of a project on a target, found and checked; raises ConfigError if it will not do."""
    if site.runconfig.environment is not None:
        return _by_plugin(site.runconfig.environment, site)
    if is_managed(site.compute, site.runconfig):
        name = "managed"
    elif site.locked:
        raise ConfigError(
            f"cannot reproduce an environment on {site.compute.name}: it runs scripts with an existing Python",
            f"set userManagedEnvironment: false in aml_config/{site.compute.name}.compute",
        )
    else:
        there = type_of(site.compute).contained or is_elsewhere(site.compute)
        name = "given" if there else "existing"
    settled: Settled = load("environments", name)(site)
    return settled


def _by_plugin(name: str, site: Site) -> Settled:
    plugins = set(known("environments")) - set(_OURS)
    if name not in plugins:
        raise ConfigError(
            f"{site.runconfig.name}.runconfig sets EnvironmentPlugin: {name}, but no such plugin is installed",
            "install it in the environment of mlw, or remove the line; available:"
            f" {', '.join(sorted(plugins)) or 'none'}",
        )
    settled: Settled = load("environments", name)(site)
    return settled
