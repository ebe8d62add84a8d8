"""Which environment a run gets: the same answer for submit, prepare and check."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ..model import Command, Compute, Dependencies, Interpreter, JsonDict
from .existing import Existing, find_python


class Environment(Protocol):
    """A Python for the script, and how it comes to be there."""

    interpreter: Interpreter  # the one that runs the script, or that the environment is built around

    def lock(self, dependencies: Dependencies | None = None, facts: JsonDict | None = None) -> JsonDict:
        """What the environment is, to the last version. May use the network."""

    def steps(self, lock: JsonDict, prefix: str) -> tuple[Command, ...]:
        """The commands that build it on the target; none if it is there. Pure."""

    def python(self, prefix: str) -> str:
        """The interpreter of the environment in that folder. Pure."""


def choose_environment(
    compute: Compute, environ: Mapping[str, str], root: Path, cache: Path | None = None
) -> Environment:
    """The environment for runs of a project on a target, found and checked; raises ConfigError if it will not do."""
    return Existing(find_python(compute.python_location, environ, root, cache))
