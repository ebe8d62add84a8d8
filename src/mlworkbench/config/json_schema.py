"""JSON Schemas for editors, and templates of new configuration files with comments, generated from the key table."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..remote.shared.process_launchers import MAX_PROCESSES, PER_GPU
from ..remote.shared.retry_causes import CAUSES, MAX_RETRIES
from ..remote.shared.shell_variables import SECRET_PARTS
from ..targets.types import ComputeType
from .keys import COMPUTE, DEPENDENCIES, NESTED_KEYS, RUNCONFIG, SPARK_DEPENDENCIES, Key, applies_to, required_by
from .value_readers import MAX_NAMES

JsonDict = dict[str, Any]

FOLDER = ".schemas"  # next to the files that reference it
COMMENT = "# yaml-language-server: $schema=" + FOLDER + "/{}.schema.json"

_TABLES = {
    "compute": (COMPUTE, "A compute target, <name>.compute: where code runs"),
    "runconfig": (RUNCONFIG, "A run configuration, <name>.runconfig: how code runs"),
    "conda_dependencies": (DEPENDENCIES, "Packages of the environment, conda_dependencies.yml"),
    "spark_dependencies": (SPARK_DEPENDENCIES, "Spark packages and settings, spark_dependencies.yml"),
}
KINDS = tuple(_TABLES)

_NO_BREAK = r"[^\x00-\x1f]"
_INSIDE = r"^(?![/~\\])(?![^/\\]*:)(?!(.*[/\\])?\.\.([/\\]|$)).+$"
_SCALAR: JsonDict = {"type": ["string", "number", "boolean"]}
_SCALAR_OR_NONE: JsonDict = {"type": ["string", "number", "boolean", "null"]}
_TEXTS: JsonDict = {"type": ["array", "null"], "items": _SCALAR}
_PIP: JsonDict = {"type": "object", "properties": {"pip": _TEXTS}, "required": ["pip"], "additionalProperties": False}
_COORDINATE: JsonDict = {
    "type": "object",
    "properties": {part: {"type": ["string", "number"]} for part in ("group", "artifact", "version")},
    "required": ["group", "artifact", "version"],
}


def _any_case(word: str) -> str:
    """Return a pattern that matches a word in any case. JSON Schema has no flag for this."""
    return "".join(f"[{letter.upper()}{letter.lower()}]" for letter in word)


# JSON Schema for each kind of value, consistent with config.value_readers. null always means "not set".
_VALUE_SCHEMAS: dict[str, JsonDict] = {
    "text": {"type": ["string", "number", "null"], "pattern": rf"^{_NO_BREAK}*\S{_NO_BREAK}*$"},
    "word": {"type": ["string", "number", "null"], "pattern": r"^[^-\s]\S*$"},
    "secret": {"type": ["string", "null"], "pattern": "^AzureMlSecret="},
    "flag": {"type": ["boolean", "null"]},
    "name": {"type": ["string", "number", "null"], "pattern": r"""^[^-./\\:*?"<>|\s][^/\\:*?"<>|]*$"""},
    "inside": {"type": ["string", "null"], "pattern": _INSIDE},
    "fetch": {
        "type": ["string", "number", "null"],
        "pattern": r"^([Aa]ll|[Nn]one|\d+(\.\d+)?\s*([KMGTkmgt]i?)?[Bb]?)$",
    },
    "count": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_RETRIES},
    "retry_causes": {"type": ["array", "null"], "items": {"enum": list(CAUSES)}},
    "duration": {"type": ["string", "number", "null"]},
    "port": {"type": ["integer", "null"], "minimum": 1, "maximum": 65535},
    "amount": {"type": ["string", "number", "null"], "pattern": r"^\d+[KMGTkmgt]?[Bb]?$"},
    "gpus": {"type": ["string", "integer", "null"]},
    "processes": {"anyOf": [{"enum": [PER_GPU, None]}, {"type": "integer", "minimum": 1, "maximum": MAX_PROCESSES}]},
    "number": {"type": ["string", "number", "null"], "pattern": r"^\d+(\.\d+)?$"},
    "texts": _TEXTS,
    "arguments": _TEXTS,
    "time_limit": {"type": ["string", "integer", "null"], "pattern": r"^\d+(-\d{1,2})?(:\d{1,2}){0,2}$"},
    "sbatch_options": {"type": ["array", "null"], "items": {"type": "string", "pattern": "^--[a-z]"}},
    "texts_by_name": {"type": ["object", "null"], "additionalProperties": _SCALAR_OR_NONE},
    "goals": {"type": ["object", "null"], "additionalProperties": {"enum": ["max", "min"]}},
    "variables": {
        "type": ["object", "null"],
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": _SCALAR_OR_NONE,
    },
    "variable_names": {
        "anyOf": [
            {"enum": ["default", "none", None]},
            {
                "type": "array",
                "maxItems": MAX_NAMES,
                "items": {
                    "type": "string",
                    "pattern": "^[A-Za-z_][A-Za-z0-9_]*$",
                    "not": {"pattern": "|".join(map(_any_case, SECRET_PARTS))},
                },
            },
        ],
    },
    "kept_paths": {
        "type": ["array", "null"],
        "maxItems": MAX_NAMES,
        "items": {
            "type": ["string", "number"],
            "pattern": _INSIDE.replace("^", r"^(?![./\\]*$)(?!(\.[/\\])*outputs([/\\]|$))", 1),
        },
    },
    "tree": {"type": ["object", "null"]},
    "packages": {"type": ["array", "null"], "items": {"anyOf": [{"type": "string", "minLength": 1}, _PIP]}},
    "coordinates": {
        "type": ["array", "null"],
        "items": {"anyOf": [{"type": "string", "pattern": "^[^:]+:[^:]+:[^:]+$"}, _COORDINATE]},
    },
}


def build_schema(kind: str) -> JsonDict:
    """Return the JSON Schema (draft 2020-12) for a kind of file."""
    table, title = _TABLES[kind]
    document: JsonDict = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:mlworkbench:schema:{kind}",
        "title": title,
        "type": ["object", "null"],
        "properties": {},
        "additionalProperties": False,
    }
    for key in table:
        document["properties"][key.name] = _value_schema(key)
        for old in key.former_names:
            document["properties"][old] = {
                **_value_schema(key),
                "description": f"Old name of {key.name}.",
                "deprecated": True,
            }
    if kind == "compute":
        document["type"] = "object"
        document["anyOf"] = [{"required": ["type"]}, {"required": ["cluster", "native"]}]
        document["allOf"] = [_require_for_type(key, type_) for key in table for type_ in required_by(key)]
    if kind == "runconfig":
        for path, key in _nested_keys():
            _set_nested(document, path.split("."), _value_schema(key))
    return document


def _nested_keys() -> list[tuple[str, Key]]:
    """Return the paths of the April 2018 format and the keys that describe them."""
    pairs = [(key.name, key) for key in NESTED_KEYS]
    paths = {path for path, _ in pairs}  # these paths have their own descriptions
    tables = (*RUNCONFIG, *COMPUTE, *SPARK_DEPENDENCIES)
    return pairs + [(path, key) for key in tables for path in key.nested_paths if path not in paths]


def _set_nested(parent: JsonDict, names: list[str], value: JsonDict) -> None:
    """Set a value at a path in nested objects."""
    for name in names[:-1]:
        section = {"type": ["object", "null"], "properties": {}, "additionalProperties": False}
        parent = parent["properties"].setdefault(name, section)
    parent["properties"].setdefault(names[-1], value)


def _value_schema(key: Key) -> JsonDict:
    value: JsonDict = {"description": _describe(key)}
    if key.kind == "choice" and key.open:
        value["anyOf"] = [{"enum": [*key.choices, None]}, {"type": "string"}]
    elif key.kind == "choice":
        value["enum"] = [*key.choices, None]
    else:
        value.update(_VALUE_SCHEMAS.get(key.kind, {}))
    if key.default is not None:
        value["default"] = list(key.default) if isinstance(key.default, tuple) else key.default
    if key.replacement:
        value["deprecated"] = True
    return value


def _describe(key: Key) -> str:
    text = f"{key.doc}."
    types = applies_to(key)
    if types:
        text += f" Applies to: {', '.join(types)}."
    if key.replacement:
        text += f" Use {key.replacement} instead."
    return text


def _require_for_type(key: Key, type_: str) -> JsonDict:
    is_type = {"properties": {"type": {"const": type_}}, "required": ["type"]}
    return {"if": is_type, "then": {"required": [key.name]}}


def schema_text(kind: str) -> str:
    """Return the schema as file content."""
    return json.dumps(build_schema(kind), indent=2, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> None:
    """Write all schemas to ``folder/.schemas``, which the first lines of configuration files refer to."""
    (folder / FOLDER).mkdir(exist_ok=True)
    for kind in KINDS:
        (folder / FOLDER / f"{kind}.schema.json").write_text(schema_text(kind), encoding="utf-8", newline="\n")


# -- files with comments ---------------------------------------------------------------------------

# Strings that need no quotes in YAML, and strings that YAML would read as a boolean or null.
_BARE = re.compile(r"([A-Za-z]|[A-Za-z][\w./:@-]*[\w/]|\d+\.\d+\.\d+\.\d+)\Z", re.ASCII)
_RESERVED = ("true", "false", "yes", "no", "on", "off", "y", "n", "null")

# Commented-out examples for keys without a default.
_RUNCONFIG_EXAMPLES: dict[str, tuple[str, ...]] = {
    "ArgumentVector": ("", "  - train.py"),
    "EnvironmentVariables": ("", "  NAME: value"),
    "PassEnvironment": (" [default, NAME]",),
    "Keep": (" [lightning_logs/, wandb/]",),
    "Gpus": (" 1",),
    "ProcessesPerNode": (" gpu",),
    "MetricGoals": ("", "  width: min"),
    "Retries": (" 3",),
    "RetryOn": (" [failed, lost]",),
    "RetryDelay": (" 10s",),
    "DataSourceSettings": ("", "  iris.dsource:", "    Sampling:", "      Sample: first 1000 rows"),
    "DataSourceSubstitutions": (
        "",
        "  iris.dsource: iris-large.dsource",
    ),
}


def runconfig_text(folder: Path, values: Mapping[str, str]) -> str:
    """Return a new run configuration with every key and its description.

    ``values`` contains the values that differ from the defaults.
    """
    lines = []
    if os.path.isfile(folder / FOLDER / "runconfig.schema.json"):
        lines = [COMMENT.format("runconfig"), ""]
    for key in RUNCONFIG:
        if key.field is None:
            continue
        lines.append(f"# {key.doc}.")
        value = values.get(key.name, key.default)
        if key.name in _RUNCONFIG_EXAMPLES:
            first, *more = _RUNCONFIG_EXAMPLES[key.name]
            lines += [f"#{key.name}:{first}", *(f"#{line}" for line in more)]
        else:
            lines.append(f"{key.name}: {_scalar(value)}")
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


# Commented-out examples for optional keys of compute targets.
_COMPUTE_EXAMPLES: dict[str, tuple[str, ...]] = {
    "nativeSharedDirectory": (" ~/.azureml/share/",),
    "mounts": ("", "  - /data:/data:ro"),
    "shmSize": (" 8g",),
    "memory": (" 16g",),
    "cpus": (" 4",),
    "network": (" bridge",),
    "registryUsername": (" ada",),
    "pythonLocation": (" python3",),
    "sparkSubmitLocation": (" spark-submit",),
    "sparkMaster": (" spark://host:7077",),
    "userManagedEnvironment": (" true",),
    "nvidiaDocker": (" true",),
    "port": (" 22",),
    "jumpHost": (" user@gateway",),
}


def compute_text(folder: Path, row: ComputeType, values: Mapping[str, object]) -> str:
    """Return a new compute target with every key of its type, and the description of each key.

    Keys without a value are comments.
    """
    lines = []
    if os.path.isfile(folder / FOLDER / "compute.schema.json"):
        lines = [COMMENT.format("compute"), ""]
    for key in (*COMPUTE, *row.own_keys):
        if not row.has_key(key):
            continue
        lines += textwrap.wrap(f"{key.doc}.", 100, initial_indent="# ", subsequent_indent="# ")
        value = values.get(key.name, key.default)
        if value is not None and (key.name in values or key.name not in _COMPUTE_EXAMPLES):
            lines.append(f"{key.name}: {_scalar(value)}")
        else:
            first, *more = _COMPUTE_EXAMPLES.get(key.name, ("",))
            if key.name == "userManagedEnvironment" and not row.contained:
                first = " false"  # an example that differs from the type's default
            lines += [f"#{key.name}:{first}", *(f"#{line}" for line in more)]
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def _scalar(value: object) -> str:
    """Format a value as YAML. JSON strings are valid YAML, and no value can escape the quotes."""
    if isinstance(value, str) and _BARE.match(value) and value.lower() not in _RESERVED:
        return value
    return json.dumps(value, ensure_ascii=False)
