"""``mlw project doctor``: what will not work on the targets, and putting it right."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import click

from ..config.dialects import override
from ..config.keys import is_elsewhere
from ..config.project import Project
from ..errors import MlwError
from ..hosts.facts import Facts
from ..model import Compute, Entry, RunConfig
from ..paths import UserPaths, user_paths
from ..preflight.check import preflight
from ..preflight.finding import ERROR, Finding
from ..preflight.fix import apply
from ..preflight.imports import unprovided_imports
from ..targets.opening import open_target
from ..targets.remote import find_attachment
from . import render
from .options import in_project, rendering, run_configuration, the_project


@dataclass(frozen=True)
class _Patient:
    """A run as it would be."""

    runconfig: RunConfig
    compute: Compute
    facts: Facts | None
    entries: tuple[Entry, ...]


_COLUMNS = ("severity", "file", "line", "message", "hint")
_NOT_DONE = "not looked at: whether all packages exist and fit together; mlw experiment prepare -c NAME does that"
_ROUNDS = 100  # one repair may bring the next to light


@click.command(epilog="Example: mlw project doctor -c my_dsvm --fix")
@run_configuration("Only for aml_config/NAME.runconfig; for all of them if not given.")
@click.option("--fix", is_flag=True, help="Write the replacements into the files; comments stay.")
@in_project
@rendering
def doctor(runconfig: str | None, fix: bool, folder: str | None, output: str, query: str | None) -> int:
    """Look for packages and scripts that will not work where they are to run; exits with 1 if there is an error.

    Imports that neither the project nor its dependency file provides are reported with the line to add.

    No machine is called: what is known of one is what was seen when it was attached. No index is asked either: mlw
    experiment prepare solves the packages.
    """
    here = the_project(folder)
    names = [runconfig] if runconfig else here.runconfigs()
    patients = list(_patients(here, names, user_paths()))
    findings = _examine(here, patients)
    for _ in range(_ROUNDS if fix else 0):
        done = apply(findings, here.root)
        if not done:
            break
        for one in done:
            render.message(f"fixed {_place(one)}: {_change(one)}")
        patients = [_again(here, one) for one in patients]
        findings = _examine(here, patients)
    render.emit([_row(one) for one in findings], output=output, query=query, columns=_COLUMNS)
    if not findings:
        render.message("nothing is left to put right" if fix else "no problems found")
        render.message(_NOT_DONE)
    elif not fix and any(one.fix for one in findings):
        render.message("hint: mlw project doctor --fix writes the replacements into the files")
    return int(any(one.severity == ERROR for one in findings))


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
        yield _Patient(runconfig, compute, _facts(compute, paths), _entries(here, runconfig))


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
    if not is_elsewhere(compute.kind, compute.address):
        try:
            return open_target(compute, paths).host.facts()
        except MlwError:
            return None  # a type that is not here; what the files say can be judged all the same
    attachment = find_attachment(compute, paths)
    return Facts.from_json(attachment.facts) if attachment and attachment.facts else None


def _entries(here: Project, runconfig: RunConfig) -> tuple[Entry, ...]:
    """The script that the configuration names; where it names none, those that lie on top of the project."""
    words = runconfig.argument_vector
    if words and words[0] != "$file":
        return (Entry("script", words[0]),)
    return tuple(Entry("script", path.name) for path in sorted(here.root.glob("*.py")) if os.path.isfile(path))


def _examine(here: Project, patients: list[_Patient]) -> list[Finding]:
    """All findings, each once: configurations share files."""
    found: dict[tuple[object, ...], Finding] = {}
    locks = user_paths().home / "cache" / "locks"
    for one in patients:
        findings = [
            finding
            for entry in one.entries or (None,)
            for finding in preflight(here, one.runconfig, one.compute, one.facts, entry)
        ]
        for finding in [*findings, *unprovided_imports(here, one.runconfig, one.compute, one.entries, locks)]:
            known = found.get(_key(finding))
            if known is None or (known.severity != ERROR and finding.severity == ERROR):
                found[_key(finding)] = finding
    return sorted(found.values(), key=lambda one: (one.severity != ERROR, one.file, one.line or 0))


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
