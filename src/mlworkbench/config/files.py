"""Reads the files of aml_config: a value, or a ConfigError with file and line; and all problems of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..model import Compute, Dependencies, Problem, RunConfig, SparkDependencies
from .fields import Fields, Notes
from .keys import COMPUTE, DEPENDENCIES, RUNCONFIG, SPARK_DEPENDENCIES, TYPES, Key
from .yamlfile import load, show_path


def read_compute(path: Path) -> Compute:
    """A ``<name>.compute`` file."""
    fields = _open(path, COMPUTE)
    values = _compute_values(fields)
    fields.notes.raise_first()
    return Compute(name=path.stem, **values)


def read_runconfig(path: Path) -> RunConfig:
    """A ``<name>.runconfig`` file. Without a Target it runs on the target of its own name."""
    fields = _open(path, RUNCONFIG)
    values = _runconfig_values(fields)
    fields.notes.raise_first()
    return RunConfig(name=path.stem, **{"target": path.stem, **values})


def read_dependencies(path: Path) -> Dependencies:
    """A ``conda_dependencies.yml``, under whatever name."""
    fields = _open(path, DEPENDENCIES)
    values = fields.values()
    fields.notes.raise_first()
    conda, pip = values.pop("dependencies", ((), ()))
    return Dependencies(conda=conda, pip=pip, **values)


def read_spark_dependencies(path: Path) -> SparkDependencies:
    """A ``spark_dependencies.yml``, under whatever name."""
    fields = _open(path, SPARK_DEPENDENCIES)
    values = fields.values()
    fields.notes.raise_first()
    return SparkDependencies(**values)


def problems(path: Path) -> list[Problem]:
    """Everything wrong or odd in one file of aml_config, in the order of its lines. Never raises."""
    table, check = _check_for(path)
    try:
        fields = _open(path, table)
    except ConfigError as error:
        place = f"{error.path}:{error.line}: " if error.line else f"{error.path}: "
        return [Problem(str(error.path), error.line, "error", error.message.removeprefix(place), error.hint)]
    check(fields)
    return sorted(fields.notes.problems, key=lambda problem: problem.line or 0)


def key_line(path: Path, name: str) -> int | None:
    """Line of a key of a run configuration, for problems that only show outside the file."""
    return _open(path, RUNCONFIG).lines.get(name)


def _open(path: Path, table: tuple[Key, ...]) -> Fields:
    return Fields(load(path), table, Notes(show_path(path)))


def _check_for(path: Path) -> tuple[tuple[Key, ...], Callable[[Fields], Any]]:
    if path.suffix == ".compute":
        return COMPUTE, _compute_values
    if path.suffix == ".runconfig":
        return RUNCONFIG, _runconfig_values
    return (SPARK_DEPENDENCIES if path.name.startswith("spark") else DEPENDENCIES), Fields.values


def _compute_values(fields: Fields) -> dict[str, Any]:
    """What the file says, and for the type it names the defaults, the required and the useless keys."""
    values = fields.values()
    kind = values.get("type")
    if not fields.given("type"):
        hint = f"add a line such as `type: local`; the types are {', '.join(TYPES)}"
        fields.notes.error(fields.lines.get("type"), "the file does not say the type of the target", hint)
    if kind not in TYPES:
        return values
    for key in COMPUTE:
        if key.field is None:
            continue
        if kind in key.required and not fields.given(key.name):
            fields.notes.error(fields.lines["type"], f"a target of type {kind} needs the key {key.name!r}")
        applies = not key.types or kind in key.types
        if applies and key.default is not None:
            values.setdefault(key.field, key.default)
        elif not applies and values.get(key.field) not in (None, False):
            fields.notes.warn(fields.lines[key.name], f"{key.name} has no effect on a target of type {kind}")
    return values


def _runconfig_values(fields: Fields) -> dict[str, Any]:
    values = fields.values()
    if not fields.given("Framework"):
        fields.notes.warn(
            None,
            "Framework is not set, which means PySpark, as it always did",
            "add the line `Framework: Python` if the script does not use Spark",
        )
    return values
