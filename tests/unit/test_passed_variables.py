"""Which variables of the submitting shell a run gets, on every type of target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from mlworkbench.config.project_folder import Project
from mlworkbench.errors import ConfigError, UsageError
from mlworkbench.model import Compute, RunConfig
from mlworkbench.passed_variables import PassedVariables, pass_variables, read_named_variables
from mlworkbench.paths import UserPaths
from mlworkbench.remote.shared.shell_variables import DEFAULT, PORTABLE, SECRET_PARTS, THIS_MACHINE, is_secret_name
from mlworkbench.submit_request import Request
from mlworkbench.targets.types import BUILT_IN
from mlworkbench.user_settings import add_setting

SERVER = "http://tracking.lab:5000"
SHELL = {"KERAS_BACKEND": "jax", "HF_HOME": "/hf", "OMP_NUM_THREADS": "2", "DATA": "/data", "HF_TOKEN": "t"}
RUNCONFIG = RunConfig("local", "local")
TYPES = [row.name for row in BUILT_IN]


@pytest.fixture
def paths(tmp_path: Path) -> UserPaths:
    return UserPaths(tmp_path)


def passed(
    paths: UserPaths,
    environ: Mapping[str, str] = SHELL,
    kind: str = "local",
    runconfig: RunConfig = RUNCONFIG,
    request: Request = Request(),  # noqa: B008 - frozen
) -> PassedVariables:
    compute = Compute("there", kind, address="there" if kind in ("remote", "remotedocker", "cluster") else None)
    return pass_variables(Project(paths.home, "id", "demo"), request, runconfig, compute, paths, environ)


def test_no_default_name_looks_secret():
    assert [name for name in DEFAULT if is_secret_name(name)] == []
    assert len(set(DEFAULT)) == len(DEFAULT)
    assert all(is_secret_name(f"my_{part.lower()}_x") for part in SECRET_PARTS)


def test_words_that_contain_the_name_of_a_secret():
    assert not is_secret_name("TOKENIZERS_PARALLELISM")
    assert is_secret_name("TOKENIZER_API_KEY")
    assert is_secret_name("TOKEN_TOKENIZER")


@pytest.mark.parametrize("kind", TYPES)
def test_paths_and_thread_counts_stay_on_this_machine(paths, kind):
    environ = dict.fromkeys(DEFAULT, "1") | {"MLFLOW_TRACKING_URI": SERVER, "MLFLOW_REGISTRY_URI": SERVER}
    result = passed(paths, environ, kind)
    assert set(result.values) == set(DEFAULT if kind == "local" else PORTABLE)
    assert result.unpassed == (() if kind == "local" else THIS_MACHINE)
    assert ("OPENBLAS_CORETYPE" in result.values) == (kind == "local"), "results have the same digits as without mlw"


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("value", "on_local", "elsewhere"),
    [
        (SERVER, True, True),
        ("https://tracking.lab", True, True),
        ("databricks", True, True),
        ("databricks://profile", True, True),
        ("http://localhost:5000", True, False),
        ("http://127.0.0.1:5000", True, False),
        ("http://[::1]:5000", True, False),
        ("/home/ada/mlruns", True, False),
        ("file:///home/ada/mlruns", True, False),
        ("sqlite:////home/ada/mlflow.db", True, False),
        ("sqlite:///mlflow.db", False, False),
        ("mlruns", False, False),
        ("./mlruns", False, False),
        ("https://ada:sesame@tracking.lab", False, False),
        ("https://sesame@tracking.lab", False, False),
        ("http://[", False, False),
    ],
)
def test_exported_tracking_server_wins_where_it_can_be_used(paths, kind, value, on_local, elsewhere):
    result = passed(paths, {"MLFLOW_TRACKING_URI": value}, kind)
    expected = on_local if kind == "local" else elsewhere
    assert ("MLFLOW_TRACKING_URI" in result.values) == expected
    assert result.unpassed == (() if expected else ("MLFLOW_TRACKING_URI",))
    assert any("MLFLOW_TRACKING_URI is not passed" in note for note in result.notes) != expected
    assert "sesame" not in " ".join(result.notes)


def test_address_of_the_surrounding_run_is_no_tracking_server(paths):
    assert passed(paths, {"MLFLOW_TRACKING_URI": "mlw:run"}) == PassedVariables()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("default",), {"KERAS_BACKEND", "HF_HOME", "OMP_NUM_THREADS"}),
        (("KERAS_BACKEND", "NOT_SET"), {"KERAS_BACKEND"}),
        ((), set()),
        (("default", "HF_TOKEN"), {"KERAS_BACKEND", "HF_HOME", "OMP_NUM_THREADS"}),  # as if the reader had missed it
    ],
)
def test_run_configuration_selects_names(paths, names, expected):
    result = passed(paths, runconfig=replace(RUNCONFIG, pass_environment=names))
    assert set(result.values) == expected
    assert set(result.unpassed) == {"KERAS_BACKEND", "HF_HOME", "OMP_NUM_THREADS"} - expected


def test_other_names_need_consent(paths):
    runconfig = replace(RUNCONFIG, pass_environment=("DATA",))
    with pytest.raises(ConfigError, match="DATA is not passed") as caught:
        passed(paths, runconfig=runconfig)
    assert "mlw settings add pass-environment DATA" in str(caught.value.hint)
    assert passed(paths, {}, runconfig=runconfig) == PassedVariables(), "nothing to read"
    assert passed(paths, runconfig=runconfig, request=Request(environment={"DATA": "x"})).values == {}
    add_setting(paths, "pass-environment", "DATA")
    assert passed(paths, runconfig=runconfig).values == {"DATA": "/data"}


def test_explicit_values_and_secrets_take_precedence(paths):
    runconfig = replace(RUNCONFIG, environment_variables={"KERAS_BACKEND": "torch"})
    request = Request(environment={"OMP_NUM_THREADS": "1"}, secrets=["HF_HOME"])
    assert passed(paths, runconfig=runconfig, request=request) == PassedVariables()


@pytest.mark.parametrize("value", ["x" * 40_000, "\udc80", "http://ada:sesame@proxy", "http://ada:se/same@proxy"])
def test_values_that_cannot_be_recorded(paths, value):
    result = passed(paths, {"KERAS_BACKEND": value})
    assert result.values == {} and "KERAS_BACKEND is not passed" in result.notes[0]
    assert "same" not in result.notes[0]
    with pytest.raises(UsageError, match="--env KERAS_BACKEND: the value "):
        read_named_variables(Request(environment={"KERAS_BACKEND": None}), {"KERAS_BACKEND": value})


def test_named_variables_get_the_values_of_the_shell():
    request = read_named_variables(Request(environment={"DATA": None, "B": "b"}), SHELL)
    assert request.environment == {"DATA": "/data", "B": "b"}
    for name, message in (("HF_TOKEN", "suggests a secret"), ("NOT_SET", "is not set")):
        with pytest.raises(UsageError, match=message):
            read_named_variables(Request(environment={name: None}), SHELL)
    stored = Request(environment={"HF_TOKEN": "typed"})
    assert read_named_variables(stored, SHELL) == stored, "a typed value is the user's decision, as before"
