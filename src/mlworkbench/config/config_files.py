"""Reads the files of aml_config: a value, or a ConfigError with file and line; and all problems of a file.

Makes a new run configuration, too; changing files is what ``rewrite`` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Mapping as Values
from pathlib import Path
from typing import Any

from ..errors import ConfigError, UnknownName, UsageError
from ..model import Compute, Dependencies, Problem, RunConfig, SparkDependencies
from ..targets.types import CLUSTER, REMOTEDOCKER, ComputeType, Feature, compute_type, find_type, type_of
from .dialects import Sheet, explain
from .fields import Fields
from .keys import APRIL, COMPUTE, DEPENDENCIES, RUNCONFIG, SPARK_DEPENDENCIES, TYPES, Key
from .notes import Notes
from .place import COMPUTE_SUFFIX, OLD_SUFFIX, RUNCONFIG_SUFFIX, is_plain_name
from .schema import compute_text, runconfig_text
from .yamlfile import Mapping, parse, read_bytes, show_path


def read_compute(path: Path) -> Compute:
    """A ``<name>.compute`` file."""
    notes, values = _compute(path)
    notes.raise_first()
    return Compute(name=path.stem, **values)


def read_runconfig(path: Path) -> RunConfig:
    """A ``<name>.runconfig`` file. Without a Target it runs on the target of its own name."""
    notes, values = _runconfig(path)
    notes.raise_first()
    return RunConfig(name=path.stem, **{"target": path.stem, **values})


def read_dependencies(path: Path) -> Dependencies:
    """A ``conda_dependencies.yml``, under whatever name."""
    notes, values = _dependencies(path)
    notes.raise_first()
    conda, pip = values.pop("dependencies", ((), ()))
    return Dependencies(conda=conda, pip=pip, **values)


def read_spark_dependencies(path: Path) -> SparkDependencies:
    """A ``spark_dependencies.yml``, under whatever name."""
    notes, values = _spark(path)
    notes.raise_first()
    return SparkDependencies(**values)


def problems(path: Path) -> list[Problem]:
    """Everything wrong or odd in one file of aml_config, in the order of its lines. Never raises."""
    beside = path.with_suffix(RUNCONFIG_SUFFIX)
    if path.suffix == OLD_SUFFIX and os.path.lexists(beside):
        return [Problem(show_path(path), None, "warning", f"ignored because {beside.name} exists", "delete it")]
    try:
        notes, _ = _reader_for(path)(path)
    except ConfigError as error:
        return [Problem(str(error.path), error.line, "error", error.text, error.hint)]
    return sorted(notes.problems, key=lambda problem: problem.line or 0)


def key_line(path: Path, name: str) -> int | None:
    """Line of a key of a run configuration, for problems that only show outside the file."""
    return _sheet(path).line(name)


def create_runconfig(folder: Path, name: str, values: Values[str, str], *, force: bool = False) -> Path:
    """Makes ``<name>.runconfig`` with every key in it; what is there is only replaced by ``force``."""
    if not is_plain_name(name):
        raise UsageError(f"invalid name for a run configuration: {name!r}", "use a valid file name")
    path = folder / (name + RUNCONFIG_SUFFIX)
    for there in (path, folder / (name + OLD_SUFFIX)):
        if os.path.lexists(there) and not force:
            raise UsageError(f"{show_path(there)} already exists", "use another name, or replace it with --force")
    temporary = folder / f".{name}.{os.urandom(4).hex()}.tmp"
    try:
        temporary.write_text(runconfig_text(folder, values), encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"cannot write the file: {error.strerror}", path=show_path(path)) from None
    return path


def create_target(
    folder: Path, compute: Compute, settings: Values[str, Any] | None = None, *, force: bool = False
) -> tuple[Path, Path]:
    """Makes ``<name>.compute`` and ``<name>.runconfig`` with every key in them; both, or neither of them.

    ``settings``: what the run configuration is to say besides the target.
    """
    if not is_plain_name(compute.name):
        raise UsageError(f"invalid name for a compute target: {compute.name!r}", "use a valid file name")
    path = folder / (compute.name + ".compute")
    if os.path.lexists(path) and not force:
        raise UsageError(f"{show_path(path)} already exists", "use another name")
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
            said = {"Target": compute.name, "Framework": framework, **(settings or {})}
            create_runconfig(folder, compute.name, said, force=force)
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"cannot write the file: {error.strerror}", path=show_path(path)) from None
    finally:
        temporary.unlink(missing_ok=True)
    return path, runconfig


Reader = Callable[[Path], tuple[Notes, dict[str, Any]]]


def _reader_for(path: Path) -> Reader:
    if path.suffix == COMPUTE_SUFFIX:
        return _compute
    if path.suffix in (RUNCONFIG_SUFFIX, OLD_SUFFIX):
        return _runconfig
    return _spark if path.name.startswith("spark") else _dependencies


def _load(path: Path, table: tuple[Key, ...]) -> Mapping:
    shown = show_path(path)
    data = read_bytes(path, shown)
    try:
        return parse(data, shown)
    except ConfigError as error:
        raise explain(error, data, table) from None


def _open(path: Path, table: tuple[Key, ...]) -> Fields:
    return Fields(table, Notes(show_path(path))).fill(_load(path, table))


def _sheet(path: Path) -> Sheet:
    return Sheet(_load(path, RUNCONFIG + APRIL), Notes(show_path(path)))


# -- one per kind of file --------------------------------------------------------------------------


def _compute(path: Path) -> tuple[Notes, dict[str, Any]]:
    """What the file says, and for the type it names the defaults, the required and the useless keys."""
    mapping = _load(path, COMPUTE)
    fields = Fields(_compute_keys(mapping), Notes(show_path(path))).fill(mapping)
    values = fields.values()
    line = fields.line("type")
    if not fields.given("type"):
        kind = _early_type(fields)
        line = fields.line("cluster") if kind else line
        if kind:
            values["type"] = kind
    else:
        for name in ("cluster", "native"):
            if fields.given(name):
                fields.no_effect(name)
    if not fields.given("type") and "type" not in values:
        hint = f"add a line such as `type: local`; available: {', '.join(TYPES)}"
        fields.notes.error(line, "missing key 'type'", hint)
    try:
        _fit(fields, values, line, compute_type(str(values.get("type"))))
    except UnknownName:
        pass  # the reader of the key warned about it
    except ConfigError as error:
        fields.notes.error(line, error.message, error.hint)
    return fields.notes, values


def _compute_keys(mapping: Mapping) -> tuple[Key, ...]:
    """Those of the built-in types, and those that the file's own type adds."""
    kind = Fields(COMPUTE, Notes("")).fill(mapping).read("type")
    row = find_type(kind) if kind else None
    return (*COMPUTE, *row.own_keys) if row else COMPUTE


def _early_type(fields: Fields) -> str | None:
    """The type as the files of May 2017 say it: with two truth values that are always equal."""
    flags = fields.read("cluster"), fields.read("native")
    kind = {(True, True): CLUSTER.name, (False, False): REMOTEDOCKER.name}.get(flags)
    if kind:
        message = f"cluster and native are obsolete; here they mean type: {kind}"
        fields.notes.warn(fields.line("cluster"), message, f"replace both with `type: {kind}`")
    return kind


def _fit(fields: Fields, values: dict[str, Any], line: int | None, row: ComputeType) -> None:
    """Defaults, required keys, and keys without effect for a type."""
    for key in fields.table:
        if row.requires(key) and not fields.given(key.name):
            fields.notes.error(line, f"missing key {key.name!r}, which type {row.name} requires")
        if key.field is None:
            continue
        applies = row.has_key(key)
        if applies and key.default is not None:
            values.setdefault(key.field, key.default)
        elif not applies and values.get(key.field) not in (None, False):
            fields.notes.warn(fields.line(key.name), f"{key.name} has no effect on targets of type {row.name}")
    settings = {key.name: fields.read(key.name) if fields.given(key.name) else key.default for key in row.own_keys}
    if settings:
        values["settings"] = {name: value for name, value in settings.items() if value is not None}


def _runconfig(path: Path) -> tuple[Notes, dict[str, Any]]:
    sheet = _sheet(path)
    if path.suffix == OLD_SUFFIX:
        message = f"{OLD_SUFFIX} is an obsolete file extension for run configurations"
        sheet.notes.warn(None, message, f"rename the file to {path.stem}{RUNCONFIG_SUFFIX}")
    return sheet.notes, sheet.values()


def _dependencies(path: Path) -> tuple[Notes, dict[str, Any]]:
    fields = _open(path, DEPENDENCIES)
    return fields.notes, fields.values()


def _spark(path: Path) -> tuple[Notes, dict[str, Any]]:
    fields = _open(path, SPARK_DEPENDENCIES)
    return fields.notes, fields.values()
