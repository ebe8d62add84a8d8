"""``mlw runconfiguration …``: the files that say how to run."""

from __future__ import annotations

import os
import shlex
import sys

import click

from ..config.files import create_runconfig
from ..config.place import OLD_SUFFIX
from ..config.project import Project, attach_hint
from ..config.yamlfile import show_path
from ..errors import ConfigError, UnknownName
from . import render
from .options import debugging, in_project, rendering, the_project
from .verbs import Verbs

_COLUMNS = ("name", "target", "framework", "script")


@click.group(cls=Verbs, epilog="Example: mlw runconfiguration create -n fast -t local")
def runconfiguration() -> None:
    """Create, list, and delete run configurations."""


@runconfiguration.command(epilog="Example: mlw runconfiguration create -n gpu -t docker")
@click.option("-n", "--name", required=True, help="Name of the run configuration and its file")
@click.option("-t", "--target", required=True, help="Compute target")
@click.option("--force", is_flag=True, help="Replace an existing file")
@in_project
@debugging
def create(name: str, target: str, force: bool, folder: str | None) -> None:
    """Create a run configuration.

    Writes aml_config/NAME.runconfig with all keys and their descriptions. Several run configurations can use the same
    target.
    """
    here = the_project(folder)
    if target not in here.computes():
        raise UnknownName("compute target", target, here.computes(), otherwise=attach_hint(target))
    path = create_runconfig(here.folder, name, {"Target": target, "Framework": "Python"}, force=force)
    render.message(f"created {show_path(path)}")
    render.message(f"hint: use it with: mlw submit -c {shlex.quote(name)} {shlex.quote(here.script())}")


@runconfiguration.command("list", epilog='Example: mlw runconfiguration list --query "[].name"')
@in_project
@rendering
def list_runconfigs(folder: str | None, output: str, query: str | None) -> None:
    """List run configurations."""
    here = the_project(folder)
    rows = [_row(here, name) for name in here.runconfigs()]
    if not rows:
        render.message("no run configurations")
    render.emit(rows, output=output, query=query, columns=_COLUMNS)


def _row(here: Project, name: str) -> dict[str, str | None]:
    path = here.runconfig_file(name)
    if path.suffix == OLD_SUFFIX:
        render.message(f"hint: {show_path(path)} has an outdated extension; rename it to {name}.runconfig")
    try:
        found = here.runconfig(name)
    except ConfigError as error:
        render.warn(error.message)  # the others are listed all the same
        return dict.fromkeys(_COLUMNS) | {"name": name}
    script = found.argument_vector[0] if found.argument_vector else None
    return {"name": name, "target": found.target, "framework": found.framework, "script": script}


@runconfiguration.command(epilog="Example: mlw runconfiguration delete -n gpu")
@click.option("-n", "--name", required=True, help="Name of the run configuration")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation")
@in_project
@debugging
def delete(name: str, yes: bool, folder: str | None) -> int:
    """Delete a run configuration.

    Earlier runs keep their copy of it.
    """
    path = the_project(folder).runconfig_file(name)
    if not yes and render.terminal(sys.stdin) and not click.confirm(f"Delete {show_path(path)}?", err=True):
        render.message("nothing was deleted")
        return 1
    try:
        os.unlink(path)
    except OSError as error:
        raise ConfigError(f"cannot delete the file: {error.strerror}", path=show_path(path)) from None
    render.message(f"deleted {show_path(path)}")
    return 0
