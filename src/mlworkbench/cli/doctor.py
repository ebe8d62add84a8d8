"""``mlw project doctor``: what will not work on the targets, and putting it right."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import click

from ..config.dialects import override
from ..config.files import key_line
from ..config.keys import nearest
from ..config.project import Project, is_tool_script
from ..config.yamlfile import show_path
from ..errors import MlwError
from ..hosts.facts import Facts
from ..model import Compute, Entry, RunConfig
from ..paths import UserPaths, user_paths
from ..preflight.check import preflight
from ..preflight.finding import ERROR, Finding
from ..preflight.fix import apply
from ..preflight.imports import check_imports
from ..targets.opening import open_target
from ..targets.remote import find_attachment
from ..targets.types import is_elsewhere
from . import render
from .options import in_project, rendering, run_configuration, the_project


@dataclass(frozen=True)
class _Patient:
    """A run as it would be."""

    runconfig: RunConfig
    compute: Compute
    facts: Facts | None
    entries: tuple[Entry, ...]
    scripts: tuple[Entry, ...]  # with those that a submit may name instead


@dataclass(frozen=True)
class _Examination:
    """Result for all run configurations. ``unchecked``: what could not be checked and why."""

    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]


_COLUMNS = ("severity", "file", "line", "message", "hint")
_NOT_DONE = "not checked: whether all packages exist and are compatible; check with 'mlw experiment prepare -c NAME'"
_ROUNDS = 100  # one repair may bring the next to light
_MOST_SCRIPTS = 50  # on top of a project


@click.command(epilog="Example: mlw project doctor -c my_dsvm --fix")
@run_configuration("Run configuration to check (default: all)")
@click.option("--fix", is_flag=True, help="Write the replacements into the files; comments are kept")
@in_project
@rendering
def doctor(runconfig: str | None, fix: bool, folder: str | None, output: str, query: str | None) -> int:
    """Check packages and scripts against the targets.

    Reports imports that neither the project nor its dependency file provides, with the line to add. Exits with 1 if
    there is an error.

    Uses no network: the facts about a machine are those recorded by attach and check. To resolve the packages as well,
    run mlw experiment prepare.
    """
    here = the_project(folder)
    names = [runconfig] if runconfig else here.runconfigs()
    patients = list(_patients(here, names, user_paths()))
    result = _examine(here, patients)
    for _ in range(_ROUNDS if fix else 0):
        done = apply(list(result.findings), here.root)
        if not done:
            break
        for one in done:
            render.message(f"fixed {_place(one)}: {_change(one)}")
        patients = [_again(here, one) for one in patients]
        result = _examine(here, patients)
    render.emit([_row(one) for one in result.findings], output=output, query=query, columns=_COLUMNS)
    if not result.findings:
        render.message("no problems left" if fix else "no problems found")
    for line in result.unchecked:
        render.message(f"not checked: {line}")
    if not result.findings:
        render.message(_NOT_DONE)
    elif not fix and any(one.fix for one in result.findings):
        render.message("hint: run 'mlw project doctor --fix' to apply the replacements")
    return int(any(one.severity == ERROR for one in result.findings))


def look(here: Project) -> list[Finding]:
    """What shows in the dependencies alone, with nothing known of the machines; broken files are left out."""
    found: dict[tuple[object, ...], Finding] = {}
    for name in here.runconfigs():
        try:
            runconfig, compute = _files(here, name)
        except MlwError:
            continue
        found |= {_key(one): one for one in preflight(here, runconfig, compute, None, None)}
    return list(found.values())


def _key(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.file, finding.line, finding.message


def _patients(here: Project, names: list[str], paths: UserPaths) -> Iterator[_Patient]:
    for name in names:
        try:
            runconfig, compute = _files(here, name)
        except MlwError as error:
            if len(names) == 1:
                raise
            render.warn(error.message)  # `mlw project validate` says it all; the others are looked at
            continue
        top = _top_scripts(here)
        named = _named_script(runconfig)
        scripts = dict.fromkeys([*named, *(one for one in top if not is_tool_script(one.name))])
        yield _Patient(runconfig, compute, _facts(compute, paths), named or top, tuple(scripts))


def _files(here: Project, name: str) -> tuple[RunConfig, Compute]:
    """A run configuration, and its target as it wants it."""
    runconfig = here.runconfig(name)
    return runconfig, override(here.compute(runconfig.target), runconfig.overrides)


def _again(here: Project, patient: _Patient) -> _Patient:
    """As its files say it now: the image of a target may be another one."""
    runconfig, compute = _files(here, patient.runconfig.name)
    return replace(patient, runconfig=runconfig, compute=compute)


def _facts(compute: Compute, paths: UserPaths) -> Facts | None:
    """What is known of the machine; nobody is called."""
    if not is_elsewhere(compute):
        try:
            return open_target(compute, paths).host.facts()
        except MlwError:
            return None  # a type that is not here; what the files say can be judged all the same
    attachment = find_attachment(compute, paths)
    return Facts.from_json(attachment.facts) if attachment and attachment.facts else None


def _named_script(runconfig: RunConfig) -> tuple[Entry, ...]:
    """The script that the configuration names; empty if it names none."""
    words = runconfig.argument_vector
    return (Entry("script", words[0]),) if words and words[0] != "$file" else ()


def _top_scripts(here: Project) -> tuple[Entry, ...]:
    paths = [path for path in sorted(here.root.glob("*.py")) if os.path.isfile(path)]
    return tuple(Entry("script", path.name) for path in paths[:_MOST_SCRIPTS])


def _missing_script(here: Project, runconfig: RunConfig) -> Iterator[Finding]:
    for one in _named_script(runconfig):
        if not (here.root / one.name).is_file():
            path = here.runconfig_file(runconfig.name)
            near = nearest(one.name, [script.name for script in _top_scripts(here)])
            hint = f"did you mean {near}?" if near else "set ArgumentVector to a script of the project"
            line = key_line(path, "ArgumentVector")
            yield Finding("script", ERROR, show_path(path), line, f"script {one.name} does not exist", hint)


def _examine(here: Project, patients: list[_Patient]) -> _Examination:
    """All findings, each once: configurations share files."""
    found: dict[tuple[object, ...], Finding] = {}
    unchecked: dict[str, None] = {}
    locks = user_paths().home / "cache" / "locks"
    for one in patients:
        findings = [
            finding
            for entry in one.entries or (None,)
            for finding in preflight(here, one.runconfig, one.compute, one.facts, entry)
        ]
        python2 = {finding.file for finding in findings if finding.rule == "python2"}
        checked = check_imports(here, one.runconfig, one.compute, one.scripts, locks, one.facts)
        findings += [each for each in checked.findings if each.rule != "syntax" or each.file not in python2]
        unchecked |= dict.fromkeys(checked.unchecked)
        for finding in [*findings, *_missing_script(here, one.runconfig)]:
            known = found.get(_key(finding))
            if known is None or (known.severity != ERROR and finding.severity == ERROR):
                found[_key(finding)] = finding
    rows = sorted(found.values(), key=lambda one: (one.severity != ERROR, one.file, one.line or 0))
    return _Examination(tuple(rows), tuple(unchecked))


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


def _place(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}"


def _change(finding: Finding) -> str:
    assert finding.fix is not None
    if finding.fix.new is None:
        return f"removed {finding.fix.old.strip()}"
    return f"{finding.fix.old.strip()} → {finding.fix.new.strip()}"
