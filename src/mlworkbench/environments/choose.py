"""Which environment a run gets: the same answer for submit, prepare and check."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ..config.keys import IN_CONTAINER, OVER_SSH
from ..model import Command, Compute, Dependencies, Interpreter, JsonDict
from .existing import Existing, find_python
from .given import Given


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
    if compute.type in IN_CONTAINER:
        return Given("image", compute.python_location, f"of the image {compute.base_docker_image}")
    if compute.type in OVER_SSH:
        return Given("target", compute.python_location, "of the target")
    return Existing(find_python(compute.python_location, environ, root, cache))
