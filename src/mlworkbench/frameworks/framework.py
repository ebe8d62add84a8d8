"""What a framework is given, and what it makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import ConfigError
from ..model import Compute, Entry, JsonDict, RunConfig, SparkDependencies
from ..registry import known, load
from ..remote.shared.layout import Root


@dataclass(frozen=True)
class Setting:
    """All that the command of a run may depend on."""

    entry: Entry
    python: str  # of the script, by its path on the target
    runconfig: RunConfig
    compute: Compute
    root: Root  # of the target
    inrun: str  # folder of the in-run library on the target
    lock: JsonDict = field(default_factory=dict)  # the environment
    variables: Mapping[str, str] = field(default_factory=dict)  # that the user sets for the script
    spark: SparkDependencies = field(default_factory=SparkDependencies)


@dataclass(frozen=True)
class Made:
    """The user's command, run in the project's root, and what it needs around it."""

    command: tuple[str, ...]
    companions: Mapping[str, JsonDict] = field(default_factory=dict)  # that watch the run: name → what each is told


class Framework(Protocol):
    """Pure: makes a value, touches nothing."""

    def make(self, setting: Setting) -> Made: ...


def framework_of(runconfig: RunConfig) -> Framework:
    """The framework that a run configuration asks for: built in, or from a plugin."""
    place = f"aml_config/{runconfig.name}.runconfig"
    if runconfig.framework not in known("frameworks"):
        raise ConfigError(
            f"{place} sets Framework: {runconfig.framework}, which does not exist",
            f"available: {', '.join(sorted(known('frameworks')))}",
        )
    made: Framework = load("frameworks", runconfig.framework)()
    return made
