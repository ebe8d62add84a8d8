"""The JSON Schemas and the reference page agree with the readers, and the committed files are current."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from mlworkbench.config import keys
from mlworkbench.config.config_files import check_file, create_runconfig, read_runconfig
from mlworkbench.config.json_schema import KINDS, build_schema, schema_text, write_schemas
from mlworkbench.errors import UsageError
from mlworkbench.model import Compute

from .test_legacy_formats import APRIL, JSON, PASCAL, Row

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "src" / "mlworkbench" / "samples"
FILES = sorted(path for path in SAMPLES.glob("*/aml_config/*") if path.is_file())


def kind_of(path: Path) -> str:
    return path.suffix[1:] if path.suffix in (".compute", ".runconfig") else path.stem.removesuffix("_gpu")


def schema_errors(kind: str, text: str) -> list[str]:
    errors = Draft202012Validator(build_schema(kind)).iter_errors(yaml.safe_load(text))
    return [error.message for error in errors]


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_schemas(kind: str) -> None:
    Draft202012Validator.check_schema(build_schema(kind))
    assert json.loads(schema_text(kind)) == build_schema(kind)


def test_samples_exist() -> None:
    assert {kind_of(path) for path in FILES} >= set(KINDS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_samples_match_and_refer_to_their_schema(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert schema_errors(kind_of(path), text) == []
    write_schemas(tmp_path)
    first = text.splitlines()[0]
    assert first == f"# yaml-language-server: $schema=.schemas/{kind_of(path)}.schema.json"
    assert json.loads((tmp_path / first.split("=")[1]).read_text()) == build_schema(kind_of(path))


@pytest.mark.parametrize("row", [*PASCAL, *JSON, *APRIL], ids=lambda row: row[0][:40])
def test_valid_files_match(row: Row) -> None:
    kind = "compute" if isinstance(row[1], Compute) else "runconfig"
    errors = schema_errors(kind, row[0].removeprefix("\ufeff"))
    # The only exception is a password in the file, which the readers accept with a warning.
    assert [error for error in errors if "AzureMlSecret" not in error] == []


WRONG = [
    ("compute", "pythonLocation: python"),
    ("compute", "type: docker\nbaseImage: x"),
    ("compute", "type: docker\nnvidiaDocker: maybe"),
    ("compute", "type: remote"),
    ("compute", "type: remote\naddress: -oProxyCommand=id"),
    ("compute", "type: cluster\nyarnDeployMode: standalone"),
    ("compute", "type: local\npassword: hunter2"),
    ("compute", "type: [local]"),
    ("runconfig", "Framwork: Python"),
    ("runconfig", "ArgumentVector: train.py --lr 1"),
    ("runconfig", "ArgumentVector: [a.py, {b: c}]"),
    ("runconfig", "Target: ../local"),
    ("runconfig", "Target: -x"),
    ("runconfig", "EnvironmentVariables: [A]"),
    ("runconfig", "EnvironmentVariables: {A=B: 1}"),
    ("runconfig", "PassEnvironment: HOME"),
    ("runconfig", "PassEnvironment: [A B]"),
    ("runconfig", "PassEnvironment: [default, {A: b}]"),
    ("runconfig", "PassEnvironment: [default, my_api_Key]"),
    ("runconfig", f"PassEnvironment: [{', '.join(f'A{number}' for number in range(201))}]"),
    ("runconfig", "Keep: wandb/"),
    ("runconfig", "Keep: [/etc/passwd]"),
    ("runconfig", "Keep: [wandb/../../x]"),
    ("runconfig", "Keep: [..]"),
    ("runconfig", "Keep: [~/x]"),
    ("runconfig", "Keep: [./]"),
    ("runconfig", "Keep: [outputs/x]"),
    ("runconfig", "Keep: ['.\\outputs']"),
    ("runconfig", "Keep: [a, {b: c}]"),
    ("runconfig", "CondaDependenciesFile: ../conda.yml"),
    ("runconfig", "CondaDependenciesFile: a/../../conda.yml"),
    ("runconfig", "CondaDependenciesFile: /etc/passwd"),
    ("runconfig", "CondaDependenciesFile: C:\\x.yml"),
    ("runconfig", "FetchOutputs: some"),
    ("runconfig", "MetricGoals: {width: smaller}"),
    ("runconfig", "Retries: -1"),
    ("runconfig", "RetryOn: [faild]"),
    ("runconfig", "history: {enabled: often}"),
    ("runconfig", "environment: {docker: {baseDockerImage: x}}"),
    ("runconfig", "environment: prod"),
    ("conda_dependencies", "dependencies: numpy"),
    ("conda_dependencies", "dependencies: [{conda: [x]}]"),
    ("conda_dependencies", "dependancies: []"),
    ("spark_dependencies", "packages: [a]"),
    ("spark_dependencies", "packages: [{group: g, artifact: a}]"),
]


@pytest.mark.parametrize(("kind", "text"), WRONG)
def test_invalid_files_do_not_match(kind: str, text: str, tmp_path: Path) -> None:
    suffix = f".{kind}" if kind in ("compute", "runconfig") else ".yml"
    path = tmp_path / (kind + suffix)
    path.write_text(text)
    assert check_file(path)
    assert schema_errors(kind, text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("default", ("default",)),
        ("none", ()),
        ("[none]", ()),
        ("[]", ()),
        ("[default, DATA_FOLDER]", ("default", "DATA_FOLDER")),
        ("null", ("default",)),
    ],
)
def test_passed_variables(text: str, names: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "x.runconfig"
    path.write_text(f"Target: local\nPassEnvironment: {text}")
    assert read_runconfig(path).pass_environment == names
    assert schema_errors("runconfig", path.read_text()) == []


def test_kept_paths_are_normalized(tmp_path: Path) -> None:
    path = tmp_path / "x.runconfig"
    path.write_text("Target: local\nKeep: [wandb/, ./wandb, a//b/, c\\d, mlflow.db, outputs2]")
    assert read_runconfig(path).keep == ("wandb", "a/b", "c/d", "mlflow.db", "outputs2")
    assert schema_errors("runconfig", path.read_text()) == []


def collect_values(node: dict[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    collected = {}
    for name, value in node.get("properties", {}).items():
        collected[path + name] = value
        collected |= collect_values(value, f"{path}{name}.")
    return collected


def test_every_key_is_in_its_schema_with_its_description() -> None:
    tables = zip(KINDS, (keys.COMPUTE, keys.RUNCONFIG, keys.DEPENDENCIES, keys.SPARK_DEPENDENCIES), strict=True)
    for kind, table in tables:
        schema_values = collect_values(build_schema(kind))
        for key in table:
            assert schema_values[key.name]["description"].startswith(key.doc), key.name
            assert set(key.former_names) <= set(schema_values)
    run = collect_values(build_schema("runconfig"))
    for key in (*keys.COMPUTE, *keys.RUNCONFIG, *keys.SPARK_DEPENDENCIES):
        assert set(key.nested_paths) <= set(run), key.name
    assert {key.name for key in keys.NESTED_KEYS} <= set(run)


# -- committed files ---------------------------------------------------------------------------------


def test_schemas_and_reference_page_are_current() -> None:
    script = ROOT / "scripts" / "generate-reference"
    result = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)


def test_the_page_documents_each_key_once() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    tables = (keys.COMPUTE, keys.RUNCONFIG, keys.DEPENDENCIES, keys.SPARK_DEPENDENCIES, keys.NESTED_KEYS)
    names = [name for table in tables for key in table for name in (key.name, *key.former_names)]
    assert sorted(rows) == sorted([*names, *keys.TYPES])
    for table in tables:
        assert [key.name for key in table if page.count(key.doc) != 1] == []


def test_links_of_the_page_work() -> None:
    page = ROOT / "docs" / "reference" / "configuration.md"
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


# -- a new run configuration -------------------------------------------------------------------------


def test_new_file_documents_keys_and_defaults(tmp_path: Path) -> None:
    path = create_runconfig(tmp_path, "gpu", {"Target": "docker", "Framework": "Python"})
    assert check_file(path) == []
    text = path.read_text()
    assert schema_errors("runconfig", text) == []
    runconfig = read_runconfig(path)
    assert (runconfig.name, runconfig.target, runconfig.framework) == ("gpu", "docker", "Python")
    lines = text.splitlines()
    for key in keys.RUNCONFIG:
        if key.field:
            (line_index,) = [index for index, line in enumerate(lines) if re.match(rf"#?{key.name}:", line)]
            assert lines[line_index - 1] == f"# {key.doc}."
            assert key.default in (None, ()) or key.name == "Framework" or getattr(runconfig, key.field) == key.default
    # Removing the comment signs enables the example.
    path.write_text(re.sub(r"(?m)^#(?! )|^#(?=  +[-\w])", "", text))
    assert check_file(path) == []
    assert read_runconfig(path).argument_vector == ("train.py",)
    write_schemas(tmp_path)
    create_runconfig(tmp_path, "more", {"Target": "docker", "Framework": "Python"})
    first = (tmp_path / "more.runconfig").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=.schemas/runconfig.schema.json"


@pytest.mark.parametrize(
    "name", ["null", "Yes", "on", "0.10", "1e5", "a b", "x: y", "#x", "é", "'", "&a", "a,b", "[x]"]
)
def test_target_name_round_trips(tmp_path: Path, name: str) -> None:
    path = create_runconfig(tmp_path, "gpu", {"Target": name.replace(":", ""), "Framework": "Python"})
    assert read_runconfig(path).target == name.replace(":", "")
    assert yaml.safe_load(path.read_text())["Target"] == name.replace(":", "")


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "-x", ".x", "a\nb"])
def test_invalid_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="invalid name for a run configuration"):
        create_runconfig(tmp_path, name, {"Target": "local"})
    assert list(tmp_path.iterdir()) == []


def test_existing_file_is_kept(tmp_path: Path) -> None:
    for name in ("gpu.runconfig", "old.amb"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(UsageError, match=f"{name} already exists") as caught:
            create_runconfig(tmp_path, name.split(".")[0], {"Target": "local"})
        assert "--force" in str(caught.value.hint)
        assert (tmp_path / name).read_text() == "mine"
    create_runconfig(tmp_path, "gpu", {"Target": "local"}, force=True)
    assert read_runconfig(tmp_path / "gpu.runconfig").target == "local"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu.runconfig", "old.amb"]
