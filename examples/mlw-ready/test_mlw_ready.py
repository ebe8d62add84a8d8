"""Tests of the target and the environment. They need the plugin and pytest in the environment of mlw."""

import subprocess
import sys

import pytest
from mlw_ready import CUDA12, ready

from mlworkbench.errors import ConfigError
from mlworkbench.model import Compute, RunConfig
from mlworkbench.paths import UserPaths
from mlworkbench.testing import HostContract, environment_site

pytest_plugins = ["mlworkbench.testing.fixtures"]
SHOW = "import os, sys\nprint(sys.prefix, os.environ['VIRTUAL_ENV'], os.environ['PATH'].split(':')[0])\n"
VISION = RunConfig("local", "local", environment_variables={"READY_ENVIRONMENT": "vision"})


class TestCudaHost(HostContract):
    @pytest.fixture
    def host(self, folder):
        return CUDA12.host(Compute("cuda", "cuda12"), UserPaths(folder.root))


def test_the_environment_is_the_one_that_is_named(tmp_path):
    settled = ready(environment_site(tmp_path, runconfig=VISION))
    assert settled.interpreter.path == "/opt/envs/vision/bin/python"
    assert settled.mounts == ("/opt/envs/vision",)


@pytest.mark.parametrize("variables", [{}, {"READY_ENVIRONMENT": "../vision"}])
def test_an_environment_must_be_named(tmp_path, variables):
    with pytest.raises(ConfigError, match="does not name a prebuilt environment"):
        ready(environment_site(tmp_path, runconfig=RunConfig("local", "local", environment_variables=variables)))


def test_a_run_in_the_environment(mlw_user, tmp_path):
    vision = tmp_path / "envs" / "vision"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(vision)], check=True)
    mlw_user.env["READY_ENVIRONMENTS"] = str(tmp_path / "envs")
    project = mlw_user.project("demo", train=SHOW)
    (project / "aml_config" / "vision.runconfig").write_text(
        "Target: local\nFramework: Python\nEnvironmentPlugin: ready\n"
        "EnvironmentVariables:\n  READY_ENVIRONMENT: vision\n"
    )
    result = mlw_user.mlw("submit", "-c", "vision", "train.py", cwd=project)
    assert (result.code, result.out) == (0, f"{vision} {vision} {vision}/bin\n"), result
    assert mlw_user.mlw("project", "validate", cwd=project).out == ""
    assert mlw_user.info(result.run)["environment"]["ready"] == "vision"
    again = mlw_user.mlw("submit", "-c", "vision", "--locked", result.run, "train.py", cwd=project)
    assert again.code == 78 and "cannot be repeated" in again.err, again


def test_a_run_on_the_target(mlw_user):
    project = mlw_user.project("demo", train="import os\nprint(os.environ['LD_LIBRARY_PATH'])\n")
    (project / "aml_config" / "cuda.compute").write_text("type: cuda12\n")
    (project / "aml_config" / "cuda.runconfig").write_text("Target: cuda\nFramework: Python\n")
    assert mlw_user.mlw("project", "validate", cwd=project).out == ""
    result = mlw_user.mlw("submit", "-c", "cuda", "train.py", cwd=project, env={"LD_LIBRARY_PATH": "/opt/mine"})
    assert (result.code, result.out) == (0, "/opt/cuda-12/lib64:/opt/mine\n"), result
