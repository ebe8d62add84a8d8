"""Project overview: recent runs, targets, run configurations, and readme."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ...config.project_folder import Project
from ...errors import MlwError
from ...history.run_query import Query
from ...history.store import History
from ...model import Run
from ...report.default_columns import common_metrics
from ...report.units import pluralize
from ...sanitize import plain
from ...targets.types import type_of
from . import files

_NOT_A_PARAGRAPH = ("#", "!", "<", "```", "|", "[", "-", "=")  # prefixes of blocks that are not plain paragraphs
_MAX_METRICS = 2  # maximum number of metrics shown for recent runs
_MAX_NAMED = 4  # maximum number of unsaved files in a message
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
    """Return the newest runs, excluding child runs, which are shown with their sweep."""
    return history.search(Query(project=project_id, children=False, limit=limit))


def shown_metrics(runs: list[Run]) -> list[str]:
    """Return the most common metrics of the runs."""
    return common_metrics(runs)[:_MAX_METRICS]


def unsaved_message(paths: list[str]) -> str:
    """Return a message that lists the files that Run saves first."""
    if not paths:
        return ""
    named = ", ".join(plain(path, 80) for path in sorted(paths)[:_MAX_NAMED]) + (
        ", …" if len(paths) > _MAX_NAMED else ""
    )
    return f"Run saves {pluralize(len(paths), 'file')} first: {named}"


def targets(project: Project) -> list[Target]:
    targets = []
    for name in project.computes():
        try:
            compute = project.compute(name)
            place = (
                compute.address or (compute.base_docker_image if type_of(compute).contained else None) or "this machine"
            )
            targets.append(Target(name, compute.type, place, None))
        except MlwError as error:
            targets.append(Target(name, "", "", error.message))
    return targets


def runconfigs(project: Project) -> list[RunConfiguration]:
    runconfigs = []
    for name in project.runconfigs():
        try:
            runconfig = project.runconfig(name)
            script = runconfig.argument_vector[0] if runconfig.argument_vector else ""
            runconfigs.append(RunConfiguration(name, runconfig.target, runconfig.framework, script, None))
        except MlwError as error:
            runconfigs.append(RunConfiguration(name, "", "", "", error.message))
    return runconfigs


def readme(root: Path) -> files.Content | None:
    """Return the project's readme file, if it has one."""
    try:
        names = {entry.name.lower(): entry.path for entry in files.listing(root).entries if entry.kind == "file"}
        path = next((names[name] for name in _READMES if name in names), None)
        content = files.read(root, path) if path else None
    except MlwError:
        return None
    return content if content is not None and content.kind == "text" and content.text.strip() else None


def description(text: str) -> str:
    """Return the first paragraph of a readme, below its title."""
    parts = [part.strip() for part in text.replace("\r\n", "\n").split("\n\n")]
    first = next((part for part in parts if part and not part.startswith(_NOT_A_PARAGRAPH)), "")
    return " ".join(first.replace("`", "").replace("**", "").split())[:300]
