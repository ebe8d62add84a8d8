"""The framework protocol, with its input and output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import ConfigError
from ..model import Compute, Entry, JsonDict, RunConfig
from ..plugin_registry import known, load
from ..project_dependencies import SparkDependencies
from ..remote.shared.layout import Root


@dataclass(frozen=True)
class Setting:
    """Everything that the command of a run may depend on."""

    entry: Entry
    python: str  # path on the target of the Python that runs the script
    runconfig: RunConfig
    compute: Compute
    root: Root  # mlw's folder on the target
    inrun: str  # in-run library folder on the target
    lock: JsonDict = field(default_factory=dict)  # lock of the environment
    variables: Mapping[str, str] = field(default_factory=dict)  # set by the user for the script
    spark: SparkDependencies = field(default_factory=SparkDependencies)


@dataclass(frozen=True)
class FrameworkCommand:
    """The user's command, which runs in the project's root folder, and the companions that watch it."""

    command: tuple[str, ...]
    companions: Mapping[str, JsonDict] = field(default_factory=dict)  # watchers of the run: name → settings


def is_notebook(entry: Entry) -> bool:
    return entry.kind == "script" and entry.name.endswith(".ipynb")


class Framework(Protocol):
    """A framework, which builds the command of a run without side effects."""

    def make(self, setting: Setting) -> FrameworkCommand: ...


Made = FrameworkCommand  # former name, kept for plugins until version 1.0


def framework_of(runconfig: RunConfig) -> Framework:
    """Return the framework that a run configuration selects, either built-in or from a plugin."""
    place = f"aml_config/{runconfig.name}.runconfig"
    if runconfig.framework not in known("frameworks"):
        raise ConfigError(
            f"{place} sets Framework: {runconfig.framework}, which does not exist",
            f"available: {', '.join(sorted(known('frameworks')))}",
        )
    framework: Framework = load("frameworks", runconfig.framework)()
    return framework
