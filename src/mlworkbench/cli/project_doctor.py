"""``mlw project doctor``: find and fix what will not work on the targets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import click

from ..config.config_files import key_line
from ..config.keys import closest_match
from ..config.legacy_formats import apply_overrides
from ..config.project_folder import Project, is_tool_script
from ..config.yaml_tree import display_path
from ..errors import MlwError
from ..hosts.host_facts import Facts
from ..model import Compute, Entry, RunConfig
from ..paths import UserPaths, user_paths
from ..preflight.checker import preflight
from ..preflight.finding import ERROR, Finding
from ..preflight.fixes import apply_fixes
from ..preflight.import_rules import check_imports
from ..targets.open_remote import find_attachment
from ..targets.target_factory import open_target
from ..targets.types import is_elsewhere
from . import render
from .options import get_project, project_option, result_options, run_configuration_option


@dataclass(frozen=True)
class _PlannedRun:
    """A run configuration to check, with the scripts that it could run."""

    runconfig: RunConfig
    compute: Compute
    facts: Facts | None
    entries: tuple[Entry, ...]
    scripts: tuple[Entry, ...]  # scripts whose imports are checked: all that could be submitted


@dataclass(frozen=True)
class _CheckResult:
    """Result for all run configurations. ``unchecked`` lists what could not be checked, and why."""

    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]


_COLUMNS = ("severity", "file", "line", "message", "hint")
_NOT_RESOLVED = (
    "not checked: whether all packages exist and are compatible; check with 'mlw experiment prepare -c NAME'"
)
_MAX_ROUNDS = 100  # maximum rounds; a fix may reveal another problem
_MAX_SCRIPTS = 50  # maximum top-level scripts


@click.command(epilog="Example: mlw project doctor -c my_dsvm --fix")
@run_configuration_option("Run configuration to check (default: all)")
@click.option("--fix", is_flag=True, help="Write the replacements into the files; comments are kept")
@project_option
@result_options
def doctor(runconfig: str | None, fix: bool, folder: str | None, output: str, query: str | None) -> int:
    """Check packages and scripts against the targets.

    Reports imports that neither the project nor its dependency file provides, with the line to add. Exits with 1 if
    there is an error.

    Uses no network: the facts about a machine are those recorded by attach and check. To resolve the packages as well,
    run mlw experiment prepare.
    """
    project = get_project(folder)
    names = [runconfig] if runconfig else project.runconfigs()
    planned = list(_plan_runs(project, names, user_paths()))
    result = _check_runs(project, planned)
    for _ in range(_MAX_ROUNDS if fix else 0):
        fixed = apply_fixes(list(result.findings), project.root)
        if not fixed:
            break
        for finding in fixed:
            render.message(f"fixed {_location(finding)}: {_describe_fix(finding)}")
        planned = [_reload(project, run) for run in planned]
        result = _check_runs(project, planned)
    render.emit([_row(finding) for finding in result.findings], output=output, query=query, columns=_COLUMNS)
    if not result.findings:
        render.message("no problems left" if fix else "no problems found")
    for line in result.unchecked:
        render.message(f"not checked: {line}")
    if not result.findings:
        render.message(_NOT_RESOLVED)
    elif not fix and any(finding.fix for finding in result.findings):
        render.message("hint: run 'mlw project doctor --fix' to apply the replacements")
    return int(any(finding.severity == ERROR for finding in result.findings))


def check_dependencies(project: Project) -> list[Finding]:
    """Find dependency problems without facts about machines. Skip invalid files."""
    findings: dict[tuple[object, ...], Finding] = {}
    for name in project.runconfigs():
        try:
            runconfig, compute = _read_configuration(project, name)
        except MlwError:
            continue
        findings |= {_finding_key(finding): finding for finding in preflight(project, runconfig, compute, None, None)}
    return list(findings.values())


def _finding_key(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.file, finding.line, finding.message


def _plan_runs(project: Project, names: list[str], paths: UserPaths) -> Iterator[_PlannedRun]:
    for name in names:
        try:
            runconfig, compute = _read_configuration(project, name)
        except MlwError as error:
            if len(names) == 1:
                raise
            render.warn(error.message)  # `mlw project validate` reports all errors; continue with the other files
            continue
        top = _top_scripts(project)
        named = _named_script(runconfig)
        scripts = dict.fromkeys([*named, *(entry for entry in top if not is_tool_script(entry.name))])
        yield _PlannedRun(runconfig, compute, _recorded_facts(compute, paths), named or top, tuple(scripts))


def _read_configuration(project: Project, name: str) -> tuple[RunConfig, Compute]:
    """Return a run configuration and its target, with the configuration's overrides applied."""
    runconfig = project.runconfig(name)
    return runconfig, apply_overrides(project.compute(runconfig.target), runconfig.overrides)


def _reload(project: Project, planned: _PlannedRun) -> _PlannedRun:
    """Read the files again after a fix, which may have changed the target's image."""
    runconfig, compute = _read_configuration(project, planned.runconfig.name)
    return replace(planned, runconfig=runconfig, compute=compute)


def _recorded_facts(compute: Compute, paths: UserPaths) -> Facts | None:
    """Return the recorded facts about the machine, without connecting to it."""
    if not is_elsewhere(compute):
        try:
            return open_target(compute, paths).host.facts()
        except MlwError:
            return None  # the compute type is not available; the files can still be checked
    attachment = find_attachment(compute, paths)
    return Facts.from_json(attachment.facts) if attachment and attachment.facts else None


def _named_script(runconfig: RunConfig) -> tuple[Entry, ...]:
    """Return the script that the configuration names, or an empty tuple."""
    arguments = runconfig.argument_vector
    return (Entry("script", arguments[0]),) if arguments and arguments[0] != "$file" else ()


def _top_scripts(project: Project) -> tuple[Entry, ...]:
    paths = [path for path in sorted(project.root.glob("*.py")) if os.path.isfile(path)]
    return tuple(Entry("script", path.name) for path in paths[:_MAX_SCRIPTS])


def _missing_script(project: Project, runconfig: RunConfig) -> Iterator[Finding]:
    for entry in _named_script(runconfig):
        if not (project.root / entry.name).is_file():
            path = project.runconfig_file(runconfig.name)
            suggestion = closest_match(entry.name, [script.name for script in _top_scripts(project)])
            hint = f"did you mean {suggestion}?" if suggestion else "set ArgumentVector to a script of the project"
            line = key_line(path, "ArgumentVector")
            yield Finding("script", ERROR, display_path(path), line, f"script {entry.name} does not exist", hint)


def _check_runs(project: Project, planned: list[_PlannedRun]) -> _CheckResult:
    """Return all findings without duplicates. Configurations may share files."""
    unique: dict[tuple[object, ...], Finding] = {}
    unchecked: dict[str, None] = {}
    locks = user_paths().home / "cache" / "locks"
    for run in planned:
        findings = [
            finding
            for entry in run.entries or (None,)
            for finding in preflight(project, run.runconfig, run.compute, run.facts, entry)
        ]
        python2 = {finding.file for finding in findings if finding.rule == "python2"}
        imports = check_imports(project, run.runconfig, run.compute, run.scripts, locks, run.facts)
        findings += [finding for finding in imports.findings if finding.rule != "syntax" or finding.file not in python2]
        unchecked |= dict.fromkeys(imports.unchecked)
        for finding in [*findings, *_missing_script(project, run.runconfig)]:
            previous = unique.get(_finding_key(finding))
            if previous is None or (previous.severity != ERROR and finding.severity == ERROR):
                unique[_finding_key(finding)] = finding
    rows = sorted(unique.values(), key=lambda finding: (finding.severity != ERROR, finding.file, finding.line or 0))
    return _CheckResult(tuple(rows), tuple(unchecked))


def _row(finding: Finding) -> dict[str, object]:
    return {
        "severity": finding.severity,
        "file": finding.file,
        "line": finding.line,
        "message": finding.message,
        "hint": finding.hint,
        "rule": finding.rule,
        "replacement": finding.fix.new if finding.fix else None,
        "fixable": finding.fix is not None,
    }


def _location(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}"


def _describe_fix(finding: Finding) -> str:
    assert finding.fix is not None
    if finding.fix.new is None:
        return f"removed {finding.fix.old.strip()}"
    return f"{finding.fix.old.strip()} → {finding.fix.new.strip()}"
