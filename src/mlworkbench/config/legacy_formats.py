"""Read all historical run configuration formats into the same values.

mlw writes PascalCase YAML. An earlier format is JSON with a few different names. A later format
(April 2018) is nested camelCase. It moves the image, GPU flag, and interpreter from the target to
the run configuration. These values become ``overrides`` of the compute target.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping as Values
from dataclasses import replace
from typing import Any

from ..errors import ConfigError
from ..model import Compute
from ..project_dependencies import SparkDependencies
from ..targets.types import find_type, in_container
from .config_problems import Diagnostics
from .field_parsing import Fields, KeyEntry, report_unknown_key
from .keys import COMPUTE, NESTED_KEYS, RUNCONFIG, SPARK_DEPENDENCIES, Key, closest_match, normalize_key
from .yaml_tree import INVALID_YAML, Mapping

_ENABLED = "environment.docker.enabled"
_REGISTRY = "environment.docker.baseImageRegistry"

CONTAINER = "container"  # key in ``overrides`` for docker.enabled, which is not a field of Compute
_ONLY_IN_CONTAINER = ("base_docker_image", "shared_volumes", "nvidia_docker")


def _map_nested_paths() -> dict[str, tuple[str, Key]]:
    """Return every April 2018 path with its part of the run configuration and its key."""
    parts = (("run", RUNCONFIG), ("target", COMPUTE), ("spark", SPARK_DEPENDENCIES))
    paths = {path: (part, key) for part, table in parts for key in table for path in key.nested_paths}
    return paths | {key.name: ("nested", key) for key in NESTED_KEYS}


_NESTED_PATHS = _map_nested_paths()
_SECTIONS = {path[: dot.start()] for path in _NESTED_PATHS for dot in re.finditer(r"\.", path)}


class RunConfigFields:
    """Keys of a run configuration in any format, grouped into run, target, and Spark settings."""

    def __init__(self, mapping: Mapping, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        self.run = Fields(RUNCONFIG, diagnostics)
        self._parts = {
            "run": self.run,
            "target": Fields(COMPUTE, diagnostics),
            "spark": Fields(SPARK_DEPENDENCIES, diagnostics),
            "nested": Fields(NESTED_KEYS, diagnostics),
        }
        self._assign_keys(mapping, "", "")

    def _assign_keys(self, mapping: Mapping, parent: str, written: str) -> None:
        """Assign each key to its part of the run configuration.

        ``parent`` is the normalized path of the parent keys; ``written`` is the path as in the file.
        """
        for key, node in mapping.pairs:
            path = parent + normalize_key(key.text)
            entry = KeyEntry(written + key.text, key.line, node)
            name = None if parent else self.run.canonical_name(key.text)
            if name is not None:
                self.run.add(name, entry)
            elif path in _NESTED_PATHS:
                part, table_key = _NESTED_PATHS[path]
                self._parts[part].add(table_key.name, entry)
            elif path not in _SECTIONS:
                report_unknown_key(key, _names_below(parent), self.diagnostics, written)
            elif isinstance(node, Mapping):
                self._assign_keys(node, path + ".", entry.name + ".")
            elif not entry.is_null:
                # The message must not repeat the value: it may contain a registry password.
                self.diagnostics.error(entry.line, f"{entry.name} must be a mapping of keys to values")

    def line(self, name: str) -> int | None:
        """Return the line of a key, given its PascalCase name."""
        line = self.run.line(name)
        return self._parts["nested"].line("script") if line is None and name == "ArgumentVector" else line

    def values(self) -> dict[str, Any]:
        """Return the fields of RunConfig that the file sets."""
        values = self.run.values()
        argument_vector = self._argument_vector()
        if argument_vector:
            values["argument_vector"] = argument_vector
        overrides = self._overrides()
        if overrides:
            values["overrides"] = overrides
        spark = self._parts["spark"].values()
        if spark:
            values["spark_dependencies"] = SparkDependencies(**spark)
        for name in ("batchai", "containerInstance"):
            if self._parts["nested"].is_set(name):
                line = self._parts["nested"].line(name)
                self.diagnostics.warn(line, f"{name} is not supported", "remove it")
        if not self.run.is_set("Framework"):
            self.diagnostics.warn(
                None,
                "Framework is not set; the default is PySpark",
                "add the line `Framework: Python` if the script does not use Spark",
            )
        return values

    def _argument_vector(self) -> tuple[str, ...]:
        """Return the script and its arguments as one list, as in the other formats."""
        nested = self._parts["nested"]
        script, arguments = nested.read("script"), nested.read("arguments") or ()
        if nested.is_set("script") and self.run.is_set("ArgumentVector"):
            first = f"ArgumentVector on line {self.run.line('ArgumentVector')}"
            self.diagnostics.error(nested.line("script"), f"script duplicates {first}", "remove one of them")
        if arguments and not nested.is_set("script"):
            hint = "add a line such as `script: train.py`"
            self.diagnostics.error(nested.line("arguments"), "arguments without a script", hint)
        return () if script is None else (script, *arguments)

    def _overrides(self) -> dict[str, Any]:
        """Return the target settings in the file, keyed by field of ``Compute``."""
        nested = self._parts["nested"]
        overrides = self._parts["target"].values()
        # The original wrote this into every file: it is the default, not the user's choice.
        if overrides.get("python_location") == "python":
            del overrides["python_location"]
        if self._read_managed() is False:
            overrides.setdefault("user_managed_environment", True)
        address, image = nested.read(f"{_REGISTRY}.address"), overrides.get("base_docker_image")
        if address and image and not image.startswith(f"{address}/"):
            overrides["base_docker_image"] = f"{address}/{image}"
        self._warn_registry_login()
        enabled = nested.read(_ENABLED)
        if enabled is False:
            overrides = {name: value for name, value in overrides.items() if name not in _ONLY_IN_CONTAINER}
        return overrides if enabled is None else {**overrides, CONTAINER: enabled}

    def _read_managed(self) -> bool | None:
        managed: bool | None = self.run.read("ManagedEnvironment")
        line = self.run.line("ManagedEnvironment")
        if managed is True:
            self.diagnostics.warn(line, "ManagedEnvironment: true is obsolete; it is the default", "remove it")
        elif managed is False:
            message = "ManagedEnvironment: false is obsolete; it means userManagedEnvironment: true"
            self.diagnostics.warn(line, message, "set userManagedEnvironment: true in the .compute file instead")
        return managed

    def _warn_registry_login(self) -> None:
        nested = self._parts["nested"]
        if nested.is_set(f"{_REGISTRY}.username"):
            nested.warn_no_effect(f"{_REGISTRY}.username")
        if nested.is_set(f"{_REGISTRY}.password"):
            entry = nested.entries[f"{_REGISTRY}.password"]
            self.diagnostics.warn(
                entry.line,
                f"{entry.name} is a secret in a file that is copied with the project",
                "remove the line and change the password; run 'docker login' on the target",
            )


def _names_below(parent: str) -> list[str]:
    """Return the names allowed below an April 2018 path, including PascalCase names at the top level."""
    names = {path[len(parent) :].split(".")[0] for path in _NESTED_PATHS if path.startswith(parent)}
    return sorted(names) if parent else [*sorted(names), *(key.name for key in RUNCONFIG)]


def apply_overrides(compute: Compute, overrides: Values[str, Any]) -> Compute:
    """Return the target with a run configuration's overrides. Unsupported keys are ignored.

    The container isolates an untrusted script from the user's files, so a project cannot disable it.
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


def explain_missing_space(error: ConfigError, data: bytes, table: Iterable[Key]) -> ConfigError:
    """Explain the error for ``nvidiaDocker:true``, which YAML reads as one string.

    The returned error names the line and the key.
    """
    names = [key.name for key in table]
    text = data.decode("utf-8", "replace")
    if text.lstrip().startswith("{") or error.code != INVALID_YAML:
        return error  # JSON needs no space after a colon; other error codes have other causes
    for number, line in enumerate(text.splitlines()[: error.line], 1):
        match = re.match(r"""\s*(["']?)([A-Za-z]\w*)\1:[^\s/\\]""", line)
        suggestion = closest_match(match[2], names) if match else None
        if match and suggestion:
            message = f"not valid YAML: missing space after the colon of {match[2]}"
            return ConfigError(message, f"add a space after the colon: `{suggestion}: …`", path=error.path, line=number)
    return error
