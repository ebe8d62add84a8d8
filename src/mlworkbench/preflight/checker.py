"""Check a project against all rules before a run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.keys import closest_match
from ..config.project_files import COMPUTE_SUFFIX, RUNCONFIG_SUFFIX
from ..config.project_folder import Project, referenced_file
from ..config.yaml_tree import display_path
from ..environments.dependencies import DEFAULT_FILE, PIXI_LOCK, UV_LOCK, Dependencies, Line
from ..environments.selection import is_managed
from ..errors import ConfigError, MlwError
from ..frameworks.framework import is_notebook
from ..model import Compute, Entry, RunConfig
from .dependency_rules import RULES, is_withdrawn
from .finding import ERROR, WARNING, CheckContext, Finding, Script, make_finding

if TYPE_CHECKING:
    from ..environments.facts_access import FactSource

_MAX_SCRIPT_BYTES = 1 << 18  # longer files are likely data, and slow to parse


def preflight(
    project: Project,
    runconfig: RunConfig,
    compute: Compute,
    facts: FactSource | None,
    entry: Entry | None,
    *,
    managed: bool | None = None,
) -> list[Finding]:
    """Return all findings. Errors, which prevent a run from starting, come first.

    Only project files are read. ``facts`` is a ``Facts`` object or the mapping in an attachment.
    ``managed`` is whether mlw creates the environment; if it is None, the configuration decides.
    """
    if managed is None:
        managed = is_managed(compute, runconfig)
    path = project.root / runconfig.conda_dependencies_file
    findings: list[Finding] = []
    dependencies = None
    if managed and os.path.lexists(path):
        from ..environments.dependency_files import read_dependencies  # noqa: PLC0415 - other runs need not wait for it

        try:
            path = referenced_file(project.root, runconfig, "CondaDependenciesFile")
            dependencies = read_dependencies(path, project.root)
            findings += _missing_files(dependencies, project.root)
        except ConfigError as error:
            findings.append(_unreadable_file(error, path))
    elif managed and path.name != DEFAULT_FILE:
        findings.append(_missing_dependency_file(project, runconfig))
    image_line = _find_image_line(project, runconfig, compute.base_docker_image)
    context = CheckContext(compute, dependencies, facts, find_script(project.root, entry), image_line)
    return sorted(
        [*findings, *examine(context)], key=lambda finding: (finding.severity != ERROR, finding.file, finding.line or 0)
    )


def examine(context: CheckContext) -> list[Finding]:
    """Return the findings of all rules, without side effects.

    If one fix changes the Python version, all other fixes are for the new version.
    """
    findings = _run_rules(context)
    python = _new_python_pin(context, findings)
    if python is None or context.dependencies is None:
        return findings
    later = {
        _identity(finding): finding
        for finding in _run_rules(replace(context, dependencies=replace(context.dependencies, python=python)))
    }
    return [
        finding if not finding.fix or _changes_python(context, finding) else _after_repin(finding, later)
        for finding in findings
    ]


def _run_rules(context: CheckContext) -> list[Finding]:
    locked = context.dependencies is not None and context.dependencies.kind in (UV_LOCK, PIXI_LOCK)
    if not locked:
        return [finding for rule in RULES for finding in rule.check(context)]
    findings = [finding for rule in RULES if rule.in_locks for finding in rule.check(context)]
    return [
        _as_lock_warning(item) if item.file in (context.dependencies or Dependencies()).files else item
        for item in findings
    ]


def _changes_python(context: CheckContext, finding: Finding) -> bool:
    """Return whether the finding's fix changes the Python version."""
    line, fix = context.dependencies and context.dependencies.python_line, finding.fix
    return bool(line and fix and (fix.file, fix.line, fix.old) == (line.file, line.line, line.text))


def _new_python_pin(context: CheckContext, findings: list[Finding]) -> str | None:
    """Return the new Python version of the first fix that changes it. That fix takes precedence."""
    new = next((finding.fix.new for finding in findings if finding.fix and _changes_python(context, finding)), None)
    return new.removeprefix("python=") if new else None


def _identity(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.file, finding.line, finding.fix and finding.fix.old


def _after_repin(finding: Finding, later: dict[tuple[object, ...], Finding]) -> Finding:
    """Return the finding for the new Python version. If that version resolves it, omit the fix."""
    return later.get(_identity(finding)) or replace(finding, fix=None)


def _as_lock_warning(finding: Finding) -> Finding:
    """Turn a finding in a lock file into a warning.

    Lock files are generated, and list packages for other platforms.
    """
    hint = f"{finding.hint}; change the project file and update the lock file"
    return replace(finding, severity=WARNING, hint=hint, fix=None)


def _find_image_line(project: Project, runconfig: RunConfig, image: str | None) -> Line | None:
    """Return the line that names the image, in the target or the run configuration.

    Return None if no rule applies to the image.
    """
    if not image or not ("cuda" in image or is_withdrawn(image)):
        return None
    paths = [project.folder / (runconfig.target + COMPUTE_SUFFIX)]
    try:
        paths.append(project.runconfig_file(runconfig.name))
    except MlwError:
        pass
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, ValueError):
            continue
        number = next((number for number, line in enumerate(lines, 1) if image in line.partition(" #")[0]), None)
        if number:
            return Line(image, display_path(path), number)
    return Line(image, display_path(paths[0]), 1)


def find_script(root: Path, entry: Entry | None) -> Script | None:
    """Return the file that an entry runs, if it is a text file in the project."""
    paths: list[Path] = []
    if entry and entry.kind == "script":
        paths = [] if is_notebook(entry) else [root / entry.name]
    elif entry and entry.kind == "module":
        path = root.joinpath(*entry.name.split("."))
        paths = [path / "__main__.py", path.with_name(path.name + ".py")]
    for path in paths:
        try:
            data = path.read_bytes() if path.is_file() and path.stat().st_size <= _MAX_SCRIPT_BYTES else None
            if data is not None:
                return Script(display_path(path), data.decode("utf-8-sig"))
        except (OSError, UnicodeDecodeError):
            return None  # reported by the snapshot or by Python
    return None


def _missing_files(dependencies: Dependencies, root: Path) -> list[Finding]:
    hint = "copy the file into the project, or use the package name and version"
    return [
        make_finding("local-file", ERROR, line, f"{line.path} is not in the project", hint)
        for line in dependencies.pip
        if line.path and not (root / line.path).is_file()
    ]


def _missing_dependency_file(project: Project, runconfig: RunConfig) -> Finding:
    filename = display_path(project.folder / f"{runconfig.name}{RUNCONFIG_SUFFIX}")
    suggestion = closest_match(runconfig.conda_dependencies_file, [f"aml_config/{DEFAULT_FILE}"])
    hint = f"did you mean {suggestion}?" if suggestion else "create the file, or change CondaDependenciesFile"
    return Finding("file", ERROR, filename, None, f"{runconfig.conda_dependencies_file} is not in the project", hint)


def _unreadable_file(error: ConfigError, path: Path) -> Finding:
    return Finding(
        "file", ERROR, error.path or display_path(path), error.line, error.text, error.hint or "edit the file"
    )
