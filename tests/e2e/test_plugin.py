"""The plugin of examples/, built and installed as anybody's would be: a framework, from submit to outputs."""

from __future__ import annotations

import pstats
from pathlib import Path

import pytest

from tests.e2e.plugins import EXAMPLES, install

EXAMPLE = EXAMPLES / "mlw-profiled"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "plugins.md"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return install("mlw-profiled", tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def project(user):
    root = user.project("demo", train="import sys\nprint('args', sys.argv[1:])\n")
    assert user.mlw("runconfiguration", "create", "-n", "profiled", "-t", "local", cwd=root).code == 0
    config = root / "aml_config" / "profiled.runconfig"
    config.write_text(config.read_text().replace("Framework: Python", "Framework: Profiled"))
    assert "Framework: Profiled" in config.read_text()
    return root


def test_a_framework_of_a_plugin(user, project, installed):
    done = user.mlw("submit", "-c", "profiled", "train.py", "--lr", "0.1", cwd=project, env=installed)
    assert (done.code, done.out) == (0, "args ['--lr', '0.1']\n"), done
    figures = pstats.Stats(str(user.folder(done.run) / "work" / "outputs" / "profile.pstats"))
    assert figures.total_calls > 0
    assert user.info(done.run)["outputs"] == 1
    wrong = user.mlw("submit", "-c", "profiled", "--", "ls", cwd=project, env=installed)
    assert wrong.code == 2 and "ls is a command" in wrong.err and "hint: submit a script" in wrong.err, wrong


def test_without_the_plugin_it_is_told(user, project):
    done = user.mlw("submit", "-c", "profiled", "train.py", cwd=project)
    assert done.code == 78 and "Framework: Profiled, and there is none of that name" in done.err, done
    assert user.runs() == []


def test_the_page_shows_the_example_as_it_is():
    text = PAGE.read_text()
    for name in ("mlw_profiled.py", "pyproject.toml"):
        assert (EXAMPLE / name).read_text().strip() in text, name
