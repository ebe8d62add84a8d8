"""Looks at a project with all rules, for one run that is about to be."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.keys import nearest
from ..config.place import COMPUTE_SUFFIX, RUNCONFIG_SUFFIX
from ..config.project import Project, named_file
from ..config.yamlfile import show_path
from ..environments.choose import is_managed
from ..environments.dependencies import PIXI_LOCK, USUAL_FILE, UV_LOCK, Dependencies, Line
from ..errors import ConfigError, MlwError
from ..model import Compute, Entry, RunConfig
from .finding import ERROR, WARNING, Case, Finding, Script, found
from .rules import RULES, is_withdrawn

if TYPE_CHECKING:
    from ..environments.known import Known

_LONGEST = 1 << 18  # bytes of a script; longer ones are data, and slow to parse


def preflight(
    project: Project,
    runconfig: RunConfig,
    compute: Compute,
    facts: Known | None,
    entry: Entry | None,
    *,
    managed: bool | None = None,
) -> list[Finding]:
    """What will not work, errors first: they keep a run from starting. Reads the project's files and nothing else.

    ``facts``: also the mapping that an attachment keeps. ``managed``: whether we make the environment; None: as the
    target says.
    """
    if managed is None:
        managed = is_managed(compute, runconfig)
    path = project.root / runconfig.conda_dependencies_file
    findings: list[Finding] = []
    dependencies = None
    if managed and os.path.lexists(path):
        from ..environments.dependency_files import read_dependencies  # noqa: PLC0415 - other runs need not wait for it

        try:
            path = named_file(project.root, runconfig, "CondaDependenciesFile")
            dependencies = read_dependencies(path, project.root)
            findings += _missing(dependencies, project.root)
        except ConfigError as error:
            findings.append(_unreadable(error, path))
    elif managed and path.name != USUAL_FILE:
        findings.append(_no_file(project, runconfig))
    image_at = _image_at(project, runconfig, compute.base_docker_image)
    case = Case(compute, dependencies, facts, find_script(project.root, entry), image_at)
    return sorted([*findings, *examine(case)], key=lambda one: (one.severity != ERROR, one.file, one.line or 0))


def examine(case: Case) -> list[Finding]:
    """What the rules say; of entries that are to be replaced, what fits the Python that will be there. Pure."""
    findings = _said(case)
    python = _repinned(case, findings)
    if python is None or case.dependencies is None:
        return findings
    later = {_entry(one): one for one in _said(replace(case, dependencies=replace(case.dependencies, python=python)))}
    return [one if not one.fix or _is_pin(case, one) else _for_later(one, later) for one in findings]


def _said(case: Case) -> list[Finding]:
    locked = case.dependencies is not None and case.dependencies.kind in (UV_LOCK, PIXI_LOCK)
    if not locked:
        return [finding for rule in RULES for finding in rule.check(case)]
    findings = [finding for rule in RULES if rule.in_locks for finding in rule.check(case)]
    return [_locked(one) if one.file in (case.dependencies or Dependencies()).files else one for one in findings]


def _is_pin(case: Case, finding: Finding) -> bool:
    """Whether a fix writes another Python."""
    at, fix = case.dependencies and case.dependencies.python_at, finding.fix
    return bool(at and fix and (fix.file, fix.line, fix.old) == (at.file, at.line, at.text))


def _repinned(case: Case, findings: list[Finding]) -> str | None:
    """The Python that the first fix writes: that is the one which counts."""
    new = next((one.fix.new for one in findings if one.fix and _is_pin(case, one)), None)
    return new.removeprefix("python=") if new else None


def _entry(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.file, finding.line, finding.fix and finding.fix.old


def _for_later(finding: Finding, later: dict[tuple[object, ...], Finding]) -> Finding:
    """What heals by the other Python is not touched."""
    return later.get(_entry(finding)) or replace(finding, fix=None)


def _locked(finding: Finding) -> Finding:
    """A lock names packages of other platforms too, and is written by a program: say it, and stop nobody."""
    hint = f"{finding.hint}; change the project file and update the lock file"
    return replace(finding, severity=WARNING, hint=hint, fix=None)


def _image_at(project: Project, runconfig: RunConfig, image: str | None) -> Line | None:
    """Where an image that rules have a say about stands: in the target's file, or in the run configuration's."""
    if not image or not ("cuda" in image or is_withdrawn(image)):
        return None
    places = [project.folder / (runconfig.target + COMPUTE_SUFFIX)]
    try:
        places.append(project.runconfig_file(runconfig.name))
    except MlwError:
        pass
    for path in places:
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, ValueError):
            continue
        number = next((number for number, line in enumerate(lines, 1) if image in line.partition(" #")[0]), None)
        if number:
            return Line(image, show_path(path), number)
    return Line(image, show_path(places[0]), 1)


def find_script(root: Path, entry: Entry | None) -> Script | None:
    """The file that an entry runs, if it is one of the project and a text."""
    places: list[Path] = []
    if entry and entry.kind == "script":
        places = [root / entry.name]
    elif entry and entry.kind == "module":
        place = root.joinpath(*entry.name.split("."))
        places = [place / "__main__.py", place.with_name(place.name + ".py")]
    for place in places:
        try:
            data = place.read_bytes() if place.is_file() and place.stat().st_size <= _LONGEST else None
            if data is not None:
                return Script(show_path(place), data.decode("utf-8-sig"))
        except (OSError, UnicodeDecodeError):
            return None  # the snapshot's or Python's complaint
    return None


def _missing(dependencies: Dependencies, root: Path) -> list[Finding]:
    hint = "copy the file into the project, or use the package name and version"
    return [
        found("local-file", ERROR, line, f"{line.path} is not in the project", hint)
        for line in dependencies.pip
        if line.path and not (root / line.path).is_file()
    ]


def _no_file(project: Project, runconfig: RunConfig) -> Finding:
    place = show_path(project.folder / f"{runconfig.name}{RUNCONFIG_SUFFIX}")
    near = nearest(runconfig.conda_dependencies_file, [f"aml_config/{USUAL_FILE}"])
    hint = f"did you mean {near}?" if near else "create the file, or change CondaDependenciesFile"
    return Finding("file", ERROR, place, None, f"{runconfig.conda_dependencies_file} is not in the project", hint)


def _unreadable(error: ConfigError, path: Path) -> Finding:
    return Finding("file", ERROR, error.path or show_path(path), error.line, error.text, error.hint or "edit the file")
