"""One project in short: its last runs, its targets and run configurations, its readme."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ...config.project import Project
from ...errors import MlwError
from ...history.query import Query
from ...history.store import History
from ...model import Run
from ...report.plain import plain
from ...report.telling import common_metrics
from ...report.units import counted
from ...targets.types import type_of
from . import files

_NO_WORDS = ("#", "!", "<", "```", "|", "[", "-", "=")  # what no paragraph begins with
_METRICS = 2  # of the last runs
_NAMED = 4  # files that are not saved
_READMES = ("readme.md", "readme.markdown", "readme.txt", "readme")


@dataclass(frozen=True)
class Target:
    """A compute target of a project."""

    name: str
    type: str
    place: Annotated[str, Field(description="Address of the machine, or the image")]
    problem: str | None = None


@dataclass(frozen=True)
class RunConfiguration:
    """A run configuration of a project."""

    name: str
    target: str
    framework: str
    script: str
    problem: str | None = None


def recent(history: History, project_id: str, limit: int = 8) -> list[Run]:
    """The newest first; those of a sweep are seen with it."""
    return history.search(Query(project=project_id, children=False, limit=limit))


def measured(runs: list[Run]) -> list[str]:
    """The metrics that most of them have."""
    return common_metrics(runs)[:_METRICS]


def unsaved(paths: list[str]) -> str:
    """What Run does before anything else, in words."""
    if not paths:
        return ""
    named = ", ".join(plain(path, 80) for path in sorted(paths)[:_NAMED]) + (", …" if len(paths) > _NAMED else "")
    return f"Run saves {counted(len(paths), 'file')} first: {named}"


def targets(project: Project) -> list[Target]:
    found = []
    for name in project.computes():
        try:
            compute = project.compute(name)
            place = (
                compute.address or (compute.base_docker_image if type_of(compute).contained else None) or "this machine"
            )
            found.append(Target(name, compute.type, place, None))
        except MlwError as error:
            found.append(Target(name, "", "", error.message))
    return found


def runconfigs(project: Project) -> list[RunConfiguration]:
    found = []
    for name in project.runconfigs():
        try:
            one = project.runconfig(name)
            script = one.argument_vector[0] if one.argument_vector else ""
            found.append(RunConfiguration(name, one.target, one.framework, script, None))
        except MlwError as error:
            found.append(RunConfiguration(name, "", "", "", error.message))
    return found


def readme(root: Path) -> files.Content | None:
    """The text at the top of the project, if there is one."""
    try:
        names = {one.name.lower(): one.path for one in files.listing(root).entries if one.kind == "file"}
        path = next((names[name] for name in _READMES if name in names), None)
        found = files.read(root, path) if path else None
    except MlwError:
        return None
    return found if found is not None and found.kind == "text" and found.text.strip() else None


def description(text: str) -> str:
    """The first paragraph of a readme, below its title."""
    parts = [part.strip() for part in text.replace("\r\n", "\n").split("\n\n")]
    first = next((part for part in parts if part and not part.startswith(_NO_WORDS)), "")
    return " ".join(first.replace("`", "").replace("**", "").split())[:300]
