"""Goals of metrics that the run configurations of a project state."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mlworkbench.config.metric_goals import goals_of_project, goals_of_runs, known_goals
from mlworkbench.config.project_folder import Project, create_project
from mlworkbench.model import Run

from ..history.test_run_state import SPEC


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = create_project("demo", tmp_path)
    for name, goals in {"a": "{width: min, loss: max}", "b": "{loss: min, height: max}", "c": "[broken"}.items():
        (project.folder / f"{name}.runconfig").write_text(f"Target: local\nMetricGoals: {goals}\n")
    os.mkfifo(project.folder / "pipe.runconfig")
    return project


def test_goals_that_configurations_agree_on(project):
    """Files that cannot be read state none."""
    assert goals_of_project(project) == {"width": "min", "height": "max"}
    assert goals_of_project(None) == {}


def test_goals_of_the_projects_of_runs(project, tmp_path):
    spec = replace(SPEC, project_path=str(project.root), project_id=project.id)
    assert goals_of_runs([Run(spec), Run(spec)]) == {"width": "min", "height": "max"}
    assert known_goals(None, [Run(spec)]) == known_goals(project, []) == {"width": "min", "height": "max"}
    assert goals_of_runs([Run(replace(spec, project_id="another"))]) == {}, "the folder has another project now"
    assert goals_of_runs([Run(replace(spec, project_path=path)) for path in (str(tmp_path / "gone"), "", "\0")]) == {}
