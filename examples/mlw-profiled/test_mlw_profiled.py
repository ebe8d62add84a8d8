"""Tests of the framework. They need the plugin and pytest in the environment of mlw."""

import pstats

import pytest
from mlw_profiled import Profiled

from mlworkbench import Entry
from mlworkbench.errors import UsageError
from mlworkbench.testing import framework_setting

pytest_plugins = ["mlworkbench.testing.fixtures"]


def test_command():
    made = Profiled().make(framework_setting(Entry("script", "train.py", ("--lr", "0.1"))))
    assert made.command[:3] == ("/usr/bin/python3", "-m", "cProfile")
    assert made.command[-3:] == ("train.py", "--lr", "0.1")


def test_commands_are_rejected():
    with pytest.raises(UsageError, match="ls is a command"):
        Profiled().make(framework_setting(Entry("command", "ls")))


def test_a_run_writes_its_profile(mlw_user):
    project = mlw_user.project("demo", train="import sys\nprint('args', sys.argv[1:])\n")
    (project / "aml_config" / "profiled.runconfig").write_text("Target: local\nFramework: Profiled\n")
    result = mlw_user.mlw("submit", "-c", "profiled", "train.py", "--lr", "0.1", cwd=project)
    assert (result.code, result.out) == (0, "args ['--lr', '0.1']\n"), result
    assert mlw_user.info(result.run)["outputs"] == 1
    profile = mlw_user.folder(result.run) / "work" / "outputs" / "profile.pstats"
    assert pstats.Stats(str(profile)).total_calls > 0
