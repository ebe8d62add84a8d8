"""Read the files in aml_config, report their problems, and create new files.

Readers return a value or raise ConfigError with the file and line. ``file_editor`` changes existing
files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Mapping as Values
from pathlib import Path
from typing import Any

from ..errors import ConfigError, UnknownName, UsageError
from ..model import Compute, Problem, RunConfig
from ..project_dependencies import Dependencies, SparkDependencies
from ..targets.types import CLUSTER, REMOTEDOCKER, ComputeType, Feature, compute_type, find_type, type_of
from .config_problems import Diagnostics
from .field_parsing import Fields
from .json_schema import compute_text, runconfig_text
from .keys import COMPUTE, DEPENDENCIES, NESTED_KEYS, RUNCONFIG, SPARK_DEPENDENCIES, TYPES, Key
from .legacy_formats import RunConfigFields, explain_missing_space
from .project_files import COMPUTE_SUFFIX, OLD_SUFFIX, RUNCONFIG_SUFFIX, is_plain_name
from .yaml_tree import Mapping, display_path, parse, read_bytes


def read_compute(path: Path) -> Compute:
    """Read a ``<name>.compute`` file."""
    diagnostics, values = _parse_compute(path)
    diagnostics.raise_first()
    return Compute(name=path.stem, **values)


def read_runconfig(path: Path) -> RunConfig:
    """Read a ``<name>.runconfig`` file. ``Target`` defaults to the file name."""
    diagnostics, values = _parse_runconfig(path)
    diagnostics.raise_first()
    return RunConfig(name=path.stem, **{"target": path.stem, **values})


def read_dependencies(path: Path) -> Dependencies:
    """Read a ``conda_dependencies.yml`` file. The file may have any name."""
    diagnostics, values = _parse_dependencies(path)
    diagnostics.raise_first()
    conda, pip = values.pop("dependencies", ((), ()))
    return Dependencies(conda=conda, pip=pip, **values)


def read_spark_dependencies(path: Path) -> SparkDependencies:
    """Read a ``spark_dependencies.yml`` file. The file may have any name."""
    diagnostics, values = _parse_spark_dependencies(path)
    diagnostics.raise_first()
    return SparkDependencies(**values)


def check_file(path: Path) -> list[Problem]:
    """Return all errors and warnings for a file in aml_config, sorted by line. Never raises."""
    runconfig = path.with_suffix(RUNCONFIG_SUFFIX)
    if path.suffix == OLD_SUFFIX and os.path.lexists(runconfig):
        return [Problem(display_path(path), None, "warning", f"ignored because {runconfig.name} exists", "delete it")]
    try:
        diagnostics, _ = _reader_for(path)(path)
    except ConfigError as error:
        return [Problem(str(error.path), error.line, "error", error.text, error.hint)]
    return sorted(diagnostics.problems, key=lambda problem: problem.line or 0)


def key_line(path: Path, name: str) -> int | None:
    """Return the line of a key in a run configuration, for problems found outside the file."""
    return _open_runconfig(path).line(name)


def create_runconfig(folder: Path, name: str, values: Values[str, str], *, force: bool = False) -> Path:
    """Create ``<name>.runconfig`` with every key. Replace an existing file only if ``force`` is true."""
    if not is_plain_name(name):
        raise UsageError(f"invalid name for a run configuration: {name!r}", "use a valid file name")
    path = folder / (name + RUNCONFIG_SUFFIX)
    for existing in (path, folder / (name + OLD_SUFFIX)):
        if os.path.lexists(existing) and not force:
            raise UsageError(f"{display_path(existing)} already exists", "use another name, or replace it with --force")
    temporary = folder / f".{name}.{os.urandom(4).hex()}.tmp"
    try:
        temporary.write_text(runconfig_text(folder, values), encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"cannot write the file: {error.strerror}", path=display_path(path)) from None
    return path


def create_target(
    folder: Path, compute: Compute, settings: Values[str, Any] | None = None, *, force: bool = False
) -> tuple[Path, Path]:
    """Create ``<name>.compute`` and ``<name>.runconfig`` with every key: both files, or neither.

    ``settings`` contains values for the run configuration other than the target.
    """
    if not is_plain_name(compute.name):
        raise UsageError(f"invalid name for a compute target: {compute.name!r}", "use a valid file name")
    path = folder / (compute.name + ".compute")
    if os.path.lexists(path) and not force:
        raise UsageError(f"{display_path(path)} already exists", "use another name")
    values, row = dict(compute.settings), type_of(compute)
    for key in COMPUTE:
        value = getattr(compute, key.field) if key.field else None
        if value not in (None, (), key.default):
            values[key.name] = value
    temporary = folder / f".{compute.name}.{os.urandom(4).hex()}.tmp"
    try:
        temporary.write_text(compute_text(folder, row, values), encoding="utf-8", newline="\n")
        runconfig = folder / (compute.name + RUNCONFIG_SUFFIX)
        if force or not os.path.lexists(runconfig):
            framework = "PySpark" if row.has(Feature.SPARK) else "Python"
            runconfig_values = {"Target": compute.name, "Framework": framework, **(settings or {})}
            create_runconfig(folder, compute.name, runconfig_values, force=force)
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"cannot write the file: {error.strerror}", path=display_path(path)) from None
    finally:
        temporary.unlink(missing_ok=True)
    return path, runconfig


Reader = Callable[[Path], tuple[Diagnostics, dict[str, Any]]]


def _reader_for(path: Path) -> Reader:
    if path.suffix == COMPUTE_SUFFIX:
        return _parse_compute
    if path.suffix in (RUNCONFIG_SUFFIX, OLD_SUFFIX):
        return _parse_runconfig
    return _parse_spark_dependencies if path.name.startswith("spark") else _parse_dependencies


def _load(path: Path, table: tuple[Key, ...]) -> Mapping:
    filename = display_path(path)
    data = read_bytes(path, filename)
    try:
        return parse(data, filename)
    except ConfigError as error:
        raise explain_missing_space(error, data, table) from None


def _open(path: Path, table: tuple[Key, ...]) -> Fields:
    return Fields(table, Diagnostics(display_path(path))).add_all(_load(path, table))


def _open_runconfig(path: Path) -> RunConfigFields:
    return RunConfigFields(_load(path, RUNCONFIG + NESTED_KEYS), Diagnostics(display_path(path)))


# -- one per kind of file --------------------------------------------------------------------------


def _parse_compute(path: Path) -> tuple[Diagnostics, dict[str, Any]]:
    """Parse the file, apply its type's defaults, and report missing keys and keys without effect."""
    mapping = _load(path, COMPUTE)
    fields = Fields(_compute_keys(mapping), Diagnostics(display_path(path))).add_all(mapping)
    values = fields.values()
    line = fields.line("type")
    if not fields.is_set("type"):
        kind = _infer_early_type(fields)
        line = fields.line("cluster") if kind else line
        if kind:
            values["type"] = kind
    else:
        for name in ("cluster", "native"):
            if fields.is_set(name):
                fields.warn_no_effect(name)
    if not fields.is_set("type") and "type" not in values:
        hint = f"add a line such as `type: local`; available: {', '.join(TYPES)}"
        fields.diagnostics.error(line, "missing key 'type'", hint)
    try:
        _apply_type(fields, values, line, compute_type(str(values.get("type"))))
    except UnknownName:
        pass  # the key's reader has already reported it
    except ConfigError as error:
        fields.diagnostics.error(line, error.message, error.hint)
    return fields.diagnostics, values


def _compute_keys(mapping: Mapping) -> tuple[Key, ...]:
    """Return the keys of the built-in types and any keys that the file's type adds."""
    kind = Fields(COMPUTE, Diagnostics("")).add_all(mapping).read("type")
    row = find_type(kind) if kind else None
    return (*COMPUTE, *row.own_keys) if row else COMPUTE


def _infer_early_type(fields: Fields) -> str | None:
    """Return the type of a file from May 2017, which has ``cluster`` and ``native`` instead."""
    flags = fields.read("cluster"), fields.read("native")
    kind = {(True, True): CLUSTER.name, (False, False): REMOTEDOCKER.name}.get(flags)
    if kind:
        message = f"cluster and native are obsolete; here they mean type: {kind}"
        fields.diagnostics.warn(fields.line("cluster"), message, f"replace both with `type: {kind}`")
    return kind


def _apply_type(fields: Fields, values: dict[str, Any], line: int | None, row: ComputeType) -> None:
    """Apply the defaults of a type, and report missing keys and keys without effect."""
    for key in fields.table:
        if row.requires(key) and not fields.is_set(key.name):
            fields.diagnostics.error(line, f"missing key {key.name!r}, which type {row.name} requires")
        if key.field is None:
            continue
        applies = row.has_key(key)
        if applies and key.default is not None:
            values.setdefault(key.field, key.default)
        elif not applies and values.get(key.field) not in (None, False):
            fields.diagnostics.warn(fields.line(key.name), f"{key.name} has no effect on targets of type {row.name}")
    settings = {key.name: fields.read(key.name) if fields.is_set(key.name) else key.default for key in row.own_keys}
    if settings:
        values["settings"] = {name: value for name, value in settings.items() if value is not None}


def _parse_runconfig(path: Path) -> tuple[Diagnostics, dict[str, Any]]:
    fields = _open_runconfig(path)
    if path.suffix == OLD_SUFFIX:
        message = f"{OLD_SUFFIX} is an obsolete file extension for run configurations"
        fields.diagnostics.warn(None, message, f"rename the file to {path.stem}{RUNCONFIG_SUFFIX}")
    return fields.diagnostics, fields.values()


def _parse_dependencies(path: Path) -> tuple[Diagnostics, dict[str, Any]]:
    fields = _open(path, DEPENDENCIES)
    return fields.diagnostics, fields.values()


def _parse_spark_dependencies(path: Path) -> tuple[Diagnostics, dict[str, Any]]:
    fields = _open(path, SPARK_DEPENDENCIES)
    return fields.diagnostics, fields.values()
