"""The goals of metrics in a project's run configurations (``MetricGoals``). They apply to earlier runs, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import MlwError
from ..model import Run
from .config_files import read_runconfig
from .project_folder import Project, find_project
from .yaml_tree import read_bytes

_KEY = b"MetricGoals"
_MAX_PROJECTS = 20
_MAX_FILES = 200


def known_goals(project: Project | None, runs: Iterable[Run]) -> dict[str, str]:
    """Return the goals of the metrics of this project's runs, or of the projects of ``runs`` if they are unrelated."""
    return goals_of_runs(runs) if project is None else goals_of_project(project)


def goals_of_project(project: Project | None) -> dict[str, str]:
    """Return the goals that the run configurations state. A file that cannot be read states none."""
    if project is None:
        return {}
    goals = []
    for name in _names(project):
        try:
            path = project.runconfig_file(name)
            if _KEY in read_bytes(path, path.name):  # much faster than parsing all files
                goals.append(read_runconfig(path).metric_goals)
        except MlwError:
            continue
    return _without_conflicts(goals)


def goals_of_runs(runs: Iterable[Run]) -> dict[str, str]:
    """Return the goals that the projects of the runs state, if the projects are still where the runs were submitted."""
    projects = dict.fromkeys((run.spec.project_path, run.spec.project_id) for run in runs)
    return _without_conflicts(goals_of_project(_find(*project)) for project in list(projects)[:_MAX_PROJECTS])


def _find(path: str, project_id: str) -> Project | None:
    try:
        project = find_project(Path(path))
    except (MlwError, OSError, ValueError):
        return None
    return project if project.id == project_id else None


def _names(project: Project) -> list[str]:
    try:
        return project.runconfigs()[:_MAX_FILES]
    except MlwError:
        return []


def _without_conflicts(all_goals: Iterable[Mapping[str, str]]) -> dict[str, str]:
    goals_by_name: dict[str, set[str]] = {}
    for goals in all_goals:
        for name, goal in goals.items():
            goals_by_name.setdefault(name, set()).add(goal)
    return {name: goals.pop() for name, goals in goals_by_name.items() if len(goals) == 1}
