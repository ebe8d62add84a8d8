"""Select the environment of a run in the same way for submit, prepare, and check."""

from __future__ import annotations

from ..errors import ConfigError
from ..model import Compute, RunConfig
from ..plugin_registry import known, load
from ..targets.types import Feature, is_elsewhere, type_of
from .selection_request import EnvironmentRequest, ResolvedEnvironment

_BUILT_IN = ("existing", "given", "managed")


def is_managed(compute: Compute, runconfig: RunConfig | None = None) -> bool:
    """Return whether mlw creates the environment. By default, it does so for containers and clusters.

    The default is the same as in the original Azure ML Workbench.
    """
    if runconfig is not None and runconfig.environment is not None:
        return False
    if compute.user_managed_environment is None:
        return type_of(compute).has(Feature.MANAGED_ENVIRONMENTS)
    return not compute.user_managed_environment


def select_environment(site: EnvironmentRequest) -> ResolvedEnvironment:
    """Find and check the environment for a project on a target; raise ConfigError if it is unusable."""
    if site.runconfig.environment is not None:
        return _select_from_plugin(site.runconfig.environment, site)
    if is_managed(site.compute, site.runconfig):
        name = "managed"
    elif site.locked:
        raise ConfigError(
            f"cannot reproduce an environment on {site.compute.name}: it runs scripts with an existing Python",
            f"set userManagedEnvironment: false in aml_config/{site.compute.name}.compute",
        )
    else:
        is_remote = type_of(site.compute).contained or is_elsewhere(site.compute)
        name = "given" if is_remote else "existing"
    environment: ResolvedEnvironment = load("environments", name)(site)
    return environment


def _select_from_plugin(name: str, site: EnvironmentRequest) -> ResolvedEnvironment:
    plugins = set(known("environments")) - set(_BUILT_IN)
    if name not in plugins:
        raise ConfigError(
            f"{site.runconfig.name}.runconfig sets EnvironmentPlugin: {name}, but no such plugin is installed",
            "install it in the environment of mlw, or remove the line; available:"
            f" {', '.join(sorted(plugins)) or 'none'}",
        )
    environment: ResolvedEnvironment = load("environments", name)(site)
    return environment
