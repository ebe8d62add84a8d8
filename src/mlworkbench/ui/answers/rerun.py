"""What a run would be made again from: the project's folder, the configuration, the script, its arguments."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...config.project import Project, find_project
from ...errors import MlwError, UsageError
from ...history.children import search_children
from ...history.query import Query
from ...history.store import History
from ...model import Run
from ...remote.environments.tally import Tally
from ...remote.folder import is_outside
from .words import Submit


@dataclass(frozen=True)
class Again:
    """A run as it can be submitted once more."""

    run: Run
    project: Project
    configurations: tuple[str, ...]
    scripts: tuple[str, ...]

    @property
    def locked(self) -> bool:
        """Whether its environment is known to the last package."""
        return (self.run.spec.lock or {}).get("kind") == "managed"

    @property
    def arguments(self) -> str:
        return shlex.join(self.run.spec.entry.arguments)


def again(history: History, run_id: str, known: Sequence[Path]) -> Again:
    """``known``: folders of projects that were opened here, in case the run's own has moved."""
    run = history.get(run_id)
    if is_outside(run.id):
        raise UsageError(f"run {run.id} was not submitted by mlw", "start its script the same way as before")
    if run.spec.inside:
        raise UsageError(f"run {run.id} is nested in run {run.spec.folder}", "rerun that run")
    for folder in (Path(run.spec.project_path), *known):
        project = _project(folder, run.spec.project_id)
        if project is not None:
            return Again(run, project, tuple(project.runconfigs()), _scripts(project.root))
    raise UsageError(
        f"the project {run.spec.project_name} is no longer in {run.spec.project_path}",
        "open its folder on the Projects page",
    )


def _project(folder: Path, project_id: str) -> Project | None:
    try:
        found = find_project(folder)
    except (MlwError, OSError):
        return None
    return found if found.id == project_id else None


def _scripts(root: Path) -> tuple[str, ...]:
    """Of the project's folder itself; others can be typed."""
    try:
        return tuple(sorted(path.name for path in root.glob("*.py"))[:200])
    except OSError:
        return ()


def words(given: Again, *, configuration: str, script: str, arguments: str, locked: bool, name: str) -> Submit:
    """What submits it. ``UsageError`` where the arguments are not well quoted."""
    try:
        typed = shlex.split(arguments)
    except ValueError as error:
        raise UsageError(f"invalid arguments: {error}", "close the quotes") from None
    if not script.strip() or script.startswith("-"):
        raise UsageError("no script given", "enter the path of a file in the project")
    spec = given.run.spec
    kinds = {"module": {"module": script}, "command": {"command": script}}
    entry: dict[str, Any] = kinds.get(spec.entry.kind, {"script": script})
    return Submit(
        configuration=configuration or None,
        arguments=typed,
        name=name.strip() or None,
        gpus=spec.gpus,
        locked=spec.id if locked else None,
        environment=spec.given,
        secrets=spec.secrets,
        sweep=_sweep(spec.sweep) if spec.sweep else None,
        **entry,
    )


def _sweep(told: dict[str, Any]) -> dict[str, Any]:
    axes = told.get("axes")
    drawn = told.get("way") == "random"
    return {
        "axes": [f"{name}={values}" for name, values in axes.items()] if isinstance(axes, dict) else [],
        "random": drawn,
        "max_runs": len(told.get("children", ())) if drawn else None,
        **{name: told.get(name) for name in ("parallel", "metric", "goal")},
    }


@dataclass(frozen=True)
class Weight:
    """What deleting runs takes away."""

    runs: list[str]
    children: int
    size: int


def weight(history: History, ids: Sequence[str]) -> Weight:
    """The children of sweeps go with them."""
    named = [history.get(one) for one in ids]
    below = [
        child.id
        for run in named
        if run.spec.sweep is not None
        for child in search_children(history, run.spec, Query(hidden=True, inside=False))
    ]
    tally = Tally()
    for name in {*(run.id for run in named), *below}:
        tally.add(history.paths.root.run(name).path)
    return Weight([run.id for run in named], len(below), tally.own)


def tags(history: History, ids: Sequence[str]) -> list[str]:
    """All that these runs have."""
    return list(dict.fromkeys(tag for one in ids for tag in history.get(one).tags))


def told(history: History, run_id: str) -> tuple[str, str, str]:
    """A run's id, its name, and the note on it."""
    run = history.get(run_id)
    return run.id, run.name or "", run.noted.note or ""
