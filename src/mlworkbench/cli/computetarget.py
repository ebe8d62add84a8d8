"""``mlw computetarget …``: the files that say where code runs."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from ..config.keys import COMPUTE
from ..config.project import Project
from ..environments.choose import choose_environment
from ..errors import ConfigError, LaunchError, MlwError
from ..model import Compute, Interpreter
from ..paths import UserPaths, user_paths
from ..submit import open_target
from ..targets.check import is_fit, judge
from . import render, units
from .completion import complete_target
from .options import in_project, rendering, the_project
from .verbs import Verbs

_COLUMNS = ("name", "type", "address", "run_configurations")
_FINDINGS = ("what", "state", "found", "hint")


@click.group(cls=Verbs)
def computetarget() -> None:
    """List, show and check compute targets."""


@computetarget.command("list", epilog="Example: mlw computetarget list -o json")
@in_project
@rendering
def list_targets(folder: str | None, output: str, query: str | None) -> None:
    """List the compute targets. JSON has their names only, as it always had; the table says more."""
    here = the_project(folder)
    if not here.computes():
        render.message("no compute targets")
    rows: object = _rows(here) if output == "table" else here.computes()
    render.emit(rows, output=output, query=query, columns=_COLUMNS)


def _rows(here: Project) -> list[dict[str, str | None]]:
    users: dict[str, list[str]] = {}
    for name in here.runconfigs():
        try:
            users.setdefault(here.runconfig(name).target, []).append(name)
        except ConfigError as error:
            render.warn(error.message)
    rows: list[dict[str, str | None]] = []
    for name in here.computes():
        found = _compute(here, name)
        rows.append(
            {
                "name": name,
                "type": found.type if found else None,
                "address": found.address if found else None,
                "run_configurations": ", ".join(users.get(name, ())),
            }
        )
    return rows


def _compute(here: Project, name: str) -> Compute | None:
    try:
        return here.compute(name)
    except ConfigError as error:
        render.warn(error.message)  # the others are listed all the same
        return None


@computetarget.command(epilog="Example: mlw computetarget show docker")
@click.argument("name", shell_complete=complete_target)
@in_project
@rendering
def show(name: str, folder: str | None, output: str, query: str | None) -> None:
    """Show all that the file of a compute target says, defaults included."""
    here = the_project(folder)
    found = here.compute(name)
    values = asdict(found)
    facts: dict[str, object] = {"name": found.name}
    for key in COMPUTE:
        if key.field and (values[key.field] is not None or not key.types or found.type in key.types):
            facts[key.name] = values[key.field]
    if found.password:
        facts["password"] = "(a pointer of the original, not used)"
    render.emit(facts, output=output, query=query)


@computetarget.command(epilog="Example: mlw computetarget check local")
@click.argument("name", shell_complete=complete_target)
@in_project
@rendering
def check(name: str, folder: str | None, output: str, query: str | None) -> int:
    """Look at the machine of a compute target: what is there, what is missing, and the remedy.

    Exits with 75 if something is missing that runs need.
    """
    here, paths = the_project(folder), user_paths()
    compute = here.compute(name)
    facts = open_target(compute, paths).host.facts()
    findings = judge(facts, compute, _python(here, compute, paths), units.size)
    tidy = output == "table" and query is None
    rows = [asdict(one) for one in findings]
    shown = [{key: row[key] for key in _FINDINGS[:-1]} for row in rows] if tidy else rows
    render.emit(shown, output=output, query=query)
    for one in findings if tidy else ():
        if one.hint:
            render.message(f"hint: {one.what}: {one.hint}")
    return 0 if is_fit(findings) else LaunchError.exit_code


def _python(here: Project, compute: Compute, paths: UserPaths) -> Interpreter | MlwError:
    try:
        return choose_environment(compute, os.environ, here.root, paths.interpreters).interpreter
    except ConfigError as error:
        return error
