"""Fixtures of the unit tests: the in-run library, script runners, and a reset of the error format."""

import shutil
import sys

import pytest

from .remote.inrun.run_process import INRUN, OLDEST_AND_NEWEST, ScriptRunner, version_names


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """A copy of the in-run library, so that tests leave no bytecode in the source tree."""
    copy = tmp_path_factory.mktemp("lib") / "inrun"
    shutil.copytree(INRUN, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(params=OLDEST_AND_NEWEST, ids=version_names(OLDEST_AND_NEWEST))
def runner(request, library, tmp_path):
    """A script runner with the oldest and with the newest Python, or with all for tests marked EVERY_PYTHON."""
    return ScriptRunner(*request.param, library, tmp_path)


@pytest.fixture
def current_runner(library, tmp_path):
    """A script runner with the current Python, for tests that do not depend on the version."""
    return ScriptRunner(sys.version_info[:2], sys.executable, library, tmp_path)


@pytest.fixture(autouse=True)
def _errors_as_text():
    """Reset the error format: a test that calls a command in this process must not affect the next test."""
    yield
    render = sys.modules.get("mlworkbench.cli.render")
    if render is not None:
        render._errors_as_json = False
