"""What the table of keys says to editors and to people who fill in a file: JSON Schemas, files with comments."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..targets.types import ComputeType
from .keys import APRIL, COMPUTE, DEPENDENCIES, RUNCONFIG, SPARK_DEPENDENCIES, Key, applies_to, required_by

JsonDict = dict[str, Any]

FOLDER = ".schemas"  # beside the files that refer to it
COMMENT = "# yaml-language-server: $schema=" + FOLDER + "/{}.schema.json"

_TABLES = {
    "compute": (COMPUTE, "A compute target, <name>.compute: where code runs"),
    "runconfig": (RUNCONFIG, "A run configuration, <name>.runconfig: how code runs"),
    "conda_dependencies": (DEPENDENCIES, "Packages of the environment, conda_dependencies.yml"),
    "spark_dependencies": (SPARK_DEPENDENCIES, "Spark packages and settings, spark_dependencies.yml"),
}
KINDS = tuple(_TABLES)

_NO_BREAK = r"[^\x00-\x1f]"
_SCALAR: JsonDict = {"type": ["string", "number", "boolean"]}
_SCALAR_OR_NONE: JsonDict = {"type": ["string", "number", "boolean", "null"]}
_TEXTS: JsonDict = {"type": ["array", "null"], "items": _SCALAR}
_PIP: JsonDict = {"type": "object", "properties": {"pip": _TEXTS}, "required": ["pip"], "additionalProperties": False}
_COORDINATE: JsonDict = {
    "type": "object",
    "properties": {part: {"type": ["string", "number"]} for part in ("group", "artifact", "version")},
    "required": ["group", "artifact", "version"],
}

# What each kind of value may be, as config.readers reads it. null is as good as nothing everywhere.
_SHAPES: dict[str, JsonDict] = {
    "text": {"type": ["string", "number", "null"], "pattern": rf"^{_NO_BREAK}*\S{_NO_BREAK}*$"},
    "word": {"type": ["string", "number", "null"], "pattern": r"^[^-\s]\S*$"},
    "secret": {"type": ["string", "null"], "pattern": "^AzureMlSecret="},
    "flag": {"type": ["boolean", "null"]},
    "name": {"type": ["string", "number", "null"], "pattern": r"""^[^-./\\:*?"<>|\s][^/\\:*?"<>|]*$"""},
    "inside": {"type": ["string", "null"], "pattern": r"^(?![/~\\])(?![^/\\]*:)(?!(.*[/\\])?\.\.([/\\]|$)).+$"},
    "fetch": {
        "type": ["string", "number", "null"],
        "pattern": r"^([Aa]ll|[Nn]one|\d+(\.\d+)?\s*([KMGTkmgt]i?)?[Bb]?)$",
    },
    "port": {"type": ["integer", "null"], "minimum": 1, "maximum": 65535},
    "amount": {"type": ["string", "number", "null"], "pattern": r"^\d+[KMGTkmgt]?[Bb]?$"},
    "gpus": {"type": ["string", "integer", "null"]},
    "number": {"type": ["string", "number", "null"], "pattern": r"^\d+(\.\d+)?$"},
    "texts": _TEXTS,
    "arguments": _TEXTS,
    "texts_by_name": {"type": ["object", "null"], "additionalProperties": _SCALAR_OR_NONE},
    "variables": {
        "type": ["object", "null"],
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": _SCALAR_OR_NONE,
    },
    "tree": {"type": ["object", "null"]},
    "packages": {"type": ["array", "null"], "items": {"anyOf": [{"type": "string", "minLength": 1}, _PIP]}},
    "coordinates": {
        "type": ["array", "null"],
        "items": {"anyOf": [{"type": "string", "pattern": "^[^:]+:[^:]+:[^:]+$"}, _COORDINATE]},
    },
}


def schema(kind: str) -> JsonDict:
    """JSON Schema (draft 2020-12) of a kind of file."""
    table, title = _TABLES[kind]
    made: JsonDict = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:mlworkbench:schema:{kind}",
        "title": title,
        "type": ["object", "null"],
        "properties": {},
        "additionalProperties": False,
    }
    for key in table:
        made["properties"][key.name] = _value(key)
        for old in key.was:
            made["properties"][old] = {**_value(key), "description": f"Old name of {key.name}.", "deprecated": True}
    if kind == "compute":
        made["type"] = "object"
        made["anyOf"] = [{"required": ["type"]}, {"required": ["cluster", "native"]}]
        made["allOf"] = [_needs(key, type_) for key in table for type_ in required_by(key)]
    if kind == "runconfig":
        for path, key in _modern():
            _plant(made, path.split("."), _value(key))
    return made


def _modern() -> list[tuple[str, Key]]:
    """Paths of the April 2018 form with the keys that describe them."""
    only = [(key.name, key) for key in APRIL]
    known = {path for path, _ in only}  # script and arguments have descriptions of their own
    tables = (*RUNCONFIG, *COMPUTE, *SPARK_DEPENDENCIES)
    return only + [(path, key) for key in tables for path in key.modern if path not in known]


def _plant(parent: JsonDict, words: list[str], value: JsonDict) -> None:
    """Puts a value at a path of nested objects."""
    for word in words[:-1]:
        section = {"type": ["object", "null"], "properties": {}, "additionalProperties": False}
        parent = parent["properties"].setdefault(word, section)
    parent["properties"].setdefault(words[-1], value)


def _value(key: Key) -> JsonDict:
    value: JsonDict = {"description": _sentence(key)}
    if key.kind == "choice" and key.open:
        value["anyOf"] = [{"enum": [*key.choices, None]}, {"type": "string"}]
    elif key.kind == "choice":
        value["enum"] = [*key.choices, None]
    else:
        value.update(_SHAPES.get(key.kind, {}))
    if key.default is not None:
        value["default"] = list(key.default) if isinstance(key.default, tuple) else key.default
    if key.instead:
        value["deprecated"] = True
    return value


def _sentence(key: Key) -> str:
    text = f"{key.doc}."
    types = applies_to(key)
    if types:
        text += f" Applies to: {', '.join(types)}."
    if key.instead:
        text += f" Use {key.instead} instead."
    return text


def _needs(key: Key, type_: str) -> JsonDict:
    is_type = {"properties": {"type": {"const": type_}}, "required": ["type"]}
    return {"if": is_type, "then": {"required": [key.name]}}


def schema_text(kind: str) -> str:
    """The schema as it stands in a file."""
    return json.dumps(schema(kind), indent=2, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> None:
    """Puts all schemas beside the files in ``folder``, for the first lines of those to refer to."""
    (folder / FOLDER).mkdir(exist_ok=True)
    for kind in KINDS:
        (folder / FOLDER / f"{kind}.schema.json").write_text(schema_text(kind), encoding="utf-8", newline="\n")


# -- files with comments ---------------------------------------------------------------------------

# What needs no quotes in YAML, and what looks like that but is a truth value or nothing there.
_BARE = re.compile(r"([A-Za-z]|[A-Za-z][\w./:@-]*[\w/]|\d+\.\d+\.\d+\.\d+)\Z", re.ASCII)
_NOT_TEXT = ("true", "false", "yes", "no", "on", "off", "y", "n", "null")

# For keys without a default; they are commented out.
_EXAMPLES: dict[str, tuple[str, ...]] = {
    "ArgumentVector": ("", "  - train.py"),
    "EnvironmentVariables": ("", "  NAME: value"),
    "Gpus": (" 1",),
    "DataSourceSettings": ("", "  iris.dsource:", "    Sampling:", "      Sample: first 1000 rows"),
    "DataSourceSubstitutions": (
        "",
        "  iris.dsource: iris-large.dsource",
    ),
}


def runconfig_text(folder: Path, values: Mapping[str, str]) -> str:
    """A new run configuration with every key and what it means; ``values`` are what differs from the defaults."""
    lines = []
    if os.path.isfile(folder / FOLDER / "runconfig.schema.json"):
        lines = [COMMENT.format("runconfig"), ""]
    for key in RUNCONFIG:
        if key.field is None:
            continue
        lines.append(f"# {key.doc}.")
        value = values.get(key.name, key.default)
        if key.name in _EXAMPLES:
            first, *more = _EXAMPLES[key.name]
            lines += [f"#{key.name}:{first}", *(f"#{line}" for line in more)]
        else:
            lines.append(f"{key.name}: {_scalar(value)}")
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


# Of a target's file, for what a machine may not need; commented out.
_UNUSED: dict[str, tuple[str, ...]] = {
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
    """A new compute target with every key that its type knows, and what it means; those without a value as comments."""
    lines = []
    if os.path.isfile(folder / FOLDER / "compute.schema.json"):
        lines = [COMMENT.format("compute"), ""]
    for key in (*COMPUTE, *row.own_keys):
        if not row.has_key(key):
            continue
        lines += textwrap.wrap(f"{key.doc}.", 100, initial_indent="# ", subsequent_indent="# ")
        value = values.get(key.name, key.default)
        if value is not None and (key.name in values or key.name not in _UNUSED):
            lines.append(f"{key.name}: {_scalar(value)}")
        else:
            first, *more = _UNUSED.get(key.name, ("",))
            if key.name == "userManagedEnvironment" and not row.contained:
                first = " false"  # what is not usual there
            lines += [f"#{key.name}:{first}", *(f"#{line}" for line in more)]
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def _scalar(value: object) -> str:
    """A value as YAML; JSON's texts are YAML's too, and no name can break out of them."""
    if isinstance(value, str) and _BARE.match(value) and value.lower() not in _NOT_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)
