"""Variables of the submitting shell: which ones reach the script, which ones need consent, and what is recorded."""

from __future__ import annotations

import json
import re

import pytest

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
SHELL = {
    "KERAS_BACKEND": "jax",
    "WANDB_MODE": "offline",
    "HF_HOME": "/data/hf",
    "OPENBLAS_NUM_THREADS": "3",
    "DATA_FOLDER": "/data/canary",
    "HF_TOKEN": "canary",
    "WANDB_API_KEY": "canary",
}


def configure(project, *lines):
    """Append lines to the run configuration ``local``."""
    path = project / "aml_config" / "local.runconfig"
    path.write_text("\n".join([path.read_text(), *lines, ""]))


def spec_of(user, run):
    return json.loads((user.folder(run) / "spec.json").read_text())


def test_exported_backend_reaches_the_script_and_the_record(user):
    project = user.project("demo", train=SHOW)
    path = project / "aml_config" / "local.runconfig"
    path.write_text(re.sub(r"(?m)^(EnvironmentVariables:.*)$", r"\1\n  WANDB_MODE: disabled", path.read_text()))
    done = user.mlw("submit", "train.py", cwd=project, env=SHELL)
    assert done.code == 0, done
    env = json.loads(done.out)
    assert (env["KERAS_BACKEND"], env["HF_HOME"], env["OPENBLAS_NUM_THREADS"]) == ("jax", "/data/hf", "3")
    assert env["WANDB_MODE"] == "disabled", "the run configuration wins"
    assert "canary" not in done.out
    spec = spec_of(user, done.run)
    assert spec["passed"] == ["HF_HOME", "KERAS_BACKEND", "OPENBLAS_NUM_THREADS"]
    assert spec["environment"]["KERAS_BACKEND"] == "jax"
    assert "canary" not in json.dumps(spec)


def test_env_without_value_passes_a_variable(user):
    project = user.project("demo", train=SHOW)
    done = user.mlw("submit", "--env", "DATA_FOLDER", "train.py", cwd=project, env=SHELL)
    assert done.code == 0, done
    assert json.loads(done.out)["DATA_FOLDER"] == "/data/canary"
    again = user.mlw("rerun", done.run, cwd=project)
    assert json.loads(again.out)["DATA_FOLDER"] == "/data/canary", again


def test_variables_that_a_project_names_need_consent(user):
    project = user.project("demo", train=SHOW)
    configure(project, "PassEnvironment: [default, DATA_FOLDER, NOT_SET]")
    refused = user.mlw("submit", "train.py", cwd=project, env=SHELL)
    assert refused.code == 78, refused
    assert "local.runconfig:" in refused.err and "DATA_FOLDER is not passed" in refused.err
    assert "mlw settings add pass-environment DATA_FOLDER" in refused.err and "/data/canary" not in refused.err
    assert user.runs() == []
    allowed = user.mlw("settings", "add", "pass-environment", "DATA_FOLDER")
    assert allowed.code == 0, allowed
    done = user.mlw("submit", "train.py", cwd=project, env=SHELL)
    env = json.loads(done.out)
    assert (env["DATA_FOLDER"], env["KERAS_BACKEND"]) == ("/data/canary", "jax")
    assert "HF_TOKEN" not in env


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["submit", "--env", "HF_TOKEN", "train.py"], 2, "--env HF_TOKEN: the name suggests a secret"),
        (["submit", "--env", "NOT_SET", "train.py"], 2, "--env NOT_SET: the variable is not set"),
        (["submit", "--env", "PROXY", "train.py"], 2, "--env PROXY: the value contains credentials"),
        (["settings", "add", "pass-environment", "HF_TOKEN"], 2, "HF_TOKEN is not allowed: the name suggests a secret"),
    ],
)
def test_secrets_are_never_passed_as_variables(user, words, code, message):
    project = user.project("demo", train=SHOW)
    done = user.mlw(*words, cwd=project, env={**SHELL, "PROXY": "http://ada:canary@proxy:8080"})
    assert done.code == code, done
    assert message in done.err and "canary" not in done.err
    assert "--secret" in done.err or "NOT_SET" in message


def test_project_cannot_name_a_secret(user):
    project = user.project("demo", train=SHOW)
    configure(project, "PassEnvironment:", "  - WANDB_API_KEY")
    done = user.mlw("submit", "train.py", cwd=project, env=SHELL)
    assert done.code == 78, done
    assert "WANDB_API_KEY" in done.err and "--secret WANDB_API_KEY" in done.err and "canary" not in done.err


def test_missing_backend_names_the_variable_that_was_not_passed(user):
    project = user.project("demo", train="raise ModuleNotFoundError(\"No module named 'tensorflow'\")")
    configure(project, "PassEnvironment: none")
    done = user.mlw("submit", "train.py", cwd=project, env=SHELL)
    assert done.code == 1, done
    assert spec_of(user, done.run)["passed"] == []
    hint = "KERAS_BACKEND is set in your shell but was not passed to the script"
    assert hint in done.err, done
    assert hint in user.info(done.run)["failure"]["hint"]


# -- other machines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["remote", "remotedocker"])
def test_another_machine_gets_modes_and_the_tracking_server(shared_target, kind):
    target = shared_target(kind)
    (target.project / "show.py").write_text(SHOW)
    shell = {**SHELL, "MLFLOW_TRACKING_URI": "http://tracking.invalid:5000"}
    done = target.submit("show.py", env=shell)
    assert done.code == 0, done
    env = json.loads(done.out)
    assert (env["KERAS_BACKEND"], env["MLFLOW_TRACKING_URI"]) == ("jax", "http://tracking.invalid:5000")
    assert not {"HF_HOME", "OPENBLAS_NUM_THREADS"} & set(env) and "canary" not in done.out
    assert "note: passed from your shell: KERAS_BACKEND, MLFLOW_TRACKING_URI, WANDB_MODE" in done.err
