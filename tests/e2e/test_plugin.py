"""A framework from a plugin: its documentation page, and the error without it. test_examples.py runs its own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.example_plugins import EXAMPLES

EXAMPLE = EXAMPLES / "mlw-profiled"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "plugins.md"


@pytest.fixture
def project(user):
    root = user.project("demo", train="import sys\nprint('args', sys.argv[1:])\n")
    assert user.mlw("runconfiguration", "create", "-n", "profiled", "-t", "local", cwd=root).code == 0
    config = root / "aml_config" / "profiled.runconfig"
    config.write_text(config.read_text().replace("Framework: Python", "Framework: Profiled"))
    assert "Framework: Profiled" in config.read_text()
    return root


def test_missing_plugin_is_reported(user, project):
    done = user.mlw("submit", "-c", "profiled", "train.py", cwd=project)
    assert done.code == 78 and "Framework: Profiled, which does not exist" in done.err, done
    assert user.runs() == []


def test_page_shows_current_example():
    text = PAGE.read_text()
    for name in ("mlw_profiled.py", "pyproject.toml"):
        assert (EXAMPLE / name).read_text().strip() in text, name
