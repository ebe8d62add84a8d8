"""The forms that run configurations had over the years, read into the same values.

PascalCase YAML is the one we write. Before it came JSON with a few other names, after it (April 2018) nested
camelCase, in which image, GPU flag and interpreter moved from the target to the run configuration: they become
``overrides`` of the compute.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping as Values
from dataclasses import replace
from typing import Any

from ..errors import ConfigError
from ..model import Compute, SparkDependencies
from ..targets.types import find_type, in_container
from .fields import Fields, Place, stranger
from .keys import APRIL, COMPUTE, RUNCONFIG, SPARK_DEPENDENCIES, Key, nearest, same_key
from .notes import Notes
from .yamlfile import INVALID_YAML, Mapping

_ENABLED = "environment.docker.enabled"
_REGISTRY = "environment.docker.baseImageRegistry"

CONTAINER = "container"  # in ``overrides``, besides fields of Compute: what docker.enabled says
_ONLY_IN_CONTAINER = ("base_docker_image", "shared_volumes", "nvidia_docker")


def _places() -> dict[str, tuple[str, Key]]:
    """Every path of the April 2018 form: the part of a sheet that it belongs to, and its key."""
    parts = (("run", RUNCONFIG), ("target", COMPUTE), ("spark", SPARK_DEPENDENCIES))
    found = {path: (part, key) for part, table in parts for key in table for path in key.modern}
    return found | {key.name: ("april", key) for key in APRIL}


_PLACES = _places()
_SECTIONS = {path[: dot.start()] for path in _PLACES for dot in re.finditer(r"\.", path)}


class Sheet:
    """A run configuration in whichever form: what it says of the run, of the target and of Spark."""

    def __init__(self, mapping: Mapping, notes: Notes) -> None:
        self.notes = notes
        self.run = Fields(RUNCONFIG, notes)
        self._parts = {
            "run": self.run,
            "target": Fields(COMPUTE, notes),
            "spark": Fields(SPARK_DEPENDENCIES, notes),
            "april": Fields(APRIL, notes),
        }
        self._sort(mapping, "", "")

    def _sort(self, mapping: Mapping, above: str, written: str) -> None:
        """Puts each key into its part; ``above`` is the path in our spelling, ``written`` as the file has it."""
        for key, node in mapping.pairs:
            path = above + same_key(key.text)
            place = Place(written + key.text, key.line, node)
            name = None if above else self.run.known(key.text)
            if name is not None:
                self.run.put(name, place)
            elif path in _PLACES:
                part, known = _PLACES[path]
                self._parts[part].put(known.name, place)
            elif path not in _SECTIONS:
                stranger(key, _siblings(above), self.notes, written)
            elif isinstance(node, Mapping):
                self._sort(node, path + ".", place.name + ".")
            elif not place.null:
                # What stands there is not repeated: below it would be the password of a registry.
                self.notes.error(place.line, f"{place.name} must be a mapping of keys to values")

    def line(self, name: str) -> int | None:
        """Line of a key of the PascalCase form, wherever it stands in this one."""
        line = self.run.line(name)
        return self._parts["april"].line("script") if line is None and name == "ArgumentVector" else line

    def values(self) -> dict[str, Any]:
        """Fields of the RunConfig that the file sets."""
        values = self.run.values()
        words = self._words()
        if words:
            values["argument_vector"] = words
        overrides = self._overrides()
        if overrides:
            values["overrides"] = overrides
        spark = self._parts["spark"].values()
        if spark:
            values["spark_dependencies"] = SparkDependencies(**spark)
        for name in ("batchai", "containerInstance"):
            if self._parts["april"].given(name):
                line = self._parts["april"].line(name)
                self.notes.warn(line, f"{name} is not supported", "remove it")
        if not self.run.given("Framework"):
            self.notes.warn(
                None,
                "Framework is not set; the default is PySpark",
                "add the line `Framework: Python` if the script does not use Spark",
            )
        return values

    def _words(self) -> tuple[str, ...]:
        """Script and arguments, which are one list in the other forms."""
        april = self._parts["april"]
        script, arguments = april.read("script"), april.read("arguments") or ()
        if april.given("script") and self.run.given("ArgumentVector"):
            first = f"ArgumentVector on line {self.run.line('ArgumentVector')}"
            self.notes.error(april.line("script"), f"script duplicates {first}", "remove one of them")
        if arguments and not april.given("script"):
            hint = "add a line such as `script: train.py`"
            self.notes.error(april.line("arguments"), "arguments without a script", hint)
        return () if script is None else (script, *arguments)

    def _overrides(self) -> dict[str, Any]:
        """What the file says of the target, by the fields of Compute."""
        april = self._parts["april"]
        overrides = self._parts["target"].values()
        # It stood in every file that the original wrote: it was the default, not a choice.
        if overrides.get("python_location") == "python":
            del overrides["python_location"]
        if self._managed() is False:
            overrides.setdefault("user_managed_environment", True)
        address, image = april.read(f"{_REGISTRY}.address"), overrides.get("base_docker_image")
        if address and image and not image.startswith(f"{address}/"):
            overrides["base_docker_image"] = f"{address}/{image}"
        self._registry_login()
        enabled = april.read(_ENABLED)
        if enabled is False:
            overrides = {name: value for name, value in overrides.items() if name not in _ONLY_IN_CONTAINER}
        return overrides if enabled is None else {**overrides, CONTAINER: enabled}

    def _managed(self) -> bool | None:
        managed: bool | None = self.run.read("ManagedEnvironment")
        line = self.run.line("ManagedEnvironment")
        if managed is True:
            self.notes.warn(line, "ManagedEnvironment: true is obsolete; it is the default", "remove it")
        elif managed is False:
            message = "ManagedEnvironment: false is obsolete; it means userManagedEnvironment: true"
            self.notes.warn(line, message, "set userManagedEnvironment: true in the .compute file instead")
        return managed

    def _registry_login(self) -> None:
        april = self._parts["april"]
        if april.given(f"{_REGISTRY}.username"):
            april.no_effect(f"{_REGISTRY}.username")
        if april.given(f"{_REGISTRY}.password"):
            place = april.places[f"{_REGISTRY}.password"]
            self.notes.warn(
                place.line,
                f"{place.name} is a secret in a file that is copied with the project",
                "remove the line and change the password; run 'docker login' on the target",
            )


def _siblings(above: str) -> list[str]:
    """The names that may stand at a place of the April 2018 form; at the top also those of the others."""
    names = {path[len(above) :].split(".")[0] for path in _PLACES if path.startswith(above)}
    return sorted(names) if above else [*sorted(names), *(key.name for key in RUNCONFIG)]


def override(compute: Compute, overrides: Values[str, Any]) -> Compute:
    """The target as a run configuration wants it. What has no effect on its type is left out.

    The container isolates an untrusted script from the user's files, so a project cannot switch it off.
    """
    if not overrides:
        return compute
    row = find_type(compute.type)
    contained = in_container(row) if row and not row.contained and overrides.get(CONTAINER) else None
    if row and row.contained and overrides.get(CONTAINER) is False:
        raise ConfigError(
            f"the run configuration sets {_ENABLED}: false, but target {compute.name} of type {row.name} runs in"
            " a container",
            "remove that line, or use a target without a container, such as local",
        )
    row = contained or row
    changes: dict[str, Any] = {"type": row.name if row else compute.type}
    for key in COMPUTE:
        if key.field is None or key.field == "type" or (row and not row.has_key(key)):
            continue
        if key.field in overrides:
            changes[key.field] = overrides[key.field]
        elif contained and key.default is not None and getattr(compute, key.field) is None:
            changes[key.field] = key.default
    return replace(compute, **changes)


# -- text that is no YAML --------------------------------------------------------------------------


def explain(error: ConfigError, data: bytes, table: Iterable[Key]) -> ConfigError:
    """For `nvidiaDocker:true`, which YAML takes for one word: the error names the line and the key to write."""
    known = [key.name for key in table]
    text = data.decode("utf-8", "replace")
    if text.lstrip().startswith("{") or error.code != INVALID_YAML:
        return error  # in JSON a colon needs no space; and the file may be wrong in another way
    for number, line in enumerate(text.splitlines()[: error.line], 1):
        found = re.match(r"""\s*(["']?)([A-Za-z]\w*)\1:[^\s/\\]""", line)
        near = nearest(found[2], known) if found else None
        if found and near:
            message = f"not valid YAML: missing space after the colon of {found[2]}"
            return ConfigError(message, f"add a space after the colon: `{near}: …`", path=error.path, line=number)
    return error
