"""What the tests of the in-run library share."""

import shutil
import sys

import pytest

from .inrun import ENDS, INRUN, Place, names_of


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """A copy, as on a target: the tests leave no bytecode in the source tree."""
    copy = tmp_path_factory.mktemp("lib") / "inrun"
    shutil.copytree(INRUN, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(params=ENDS, ids=names_of(ENDS))
def place(request, library, tmp_path):
    """In the oldest and in the newest Python, where a test is not marked EVERY_PYTHON."""
    return Place(*request.param, library, tmp_path)


@pytest.fixture
def here(library, tmp_path):
    """For what does not depend on the version."""
    return Place(sys.version_info[:2], sys.executable, library, tmp_path)


@pytest.fixture(autouse=True)
def _errors_as_text():
    """A command that a test calls in this process must not choose the form of errors for the next test."""
    yield
    render = sys.modules.get("mlworkbench.cli.render")
    if render is not None:
        render._errors_as_json = False
