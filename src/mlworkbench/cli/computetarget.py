"""``mlw computetarget …``: the files that say where code runs."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..config.keys import COMPUTE
from ..config.project import Project
from ..errors import ConfigError
from ..model import Compute
from . import render
from .main import Verbs
from .options import in_project, rendering, the_project

_COLUMNS = ("name", "type", "address", "run_configurations")


@click.group(cls=Verbs)
def computetarget() -> None:
    """List and show compute targets."""


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
@click.argument("name")
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
