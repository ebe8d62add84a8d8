"""``mlw runconfiguration …``: create, list, and delete run configurations."""

from __future__ import annotations

import os
import shlex
import sys

import click

from ..config.config_files import create_runconfig
from ..config.project_files import OLD_SUFFIX
from ..config.project_folder import Project, attach_hint
from ..config.yaml_tree import display_path
from ..errors import ConfigError, UnknownName
from . import render
from .command_tree import LazyGroup
from .options import get_project, global_options, project_option, result_options

_COLUMNS = ("name", "target", "framework", "script")


@click.group(cls=LazyGroup, epilog="Example: mlw runconfiguration create -n fast -t local")
def runconfiguration() -> None:
    """Create, list, and delete run configurations."""


@runconfiguration.command(epilog="Example: mlw runconfiguration create -n gpu -t docker")
@click.option("-n", "--name", required=True, help="Name of the run configuration and its file")
@click.option("-t", "--target", required=True, help="Compute target")
@click.option("--force", is_flag=True, help="Replace an existing file")
@project_option
@global_options
def create(name: str, target: str, force: bool, folder: str | None) -> None:
    """Create a run configuration.

    Writes aml_config/NAME.runconfig with all keys and their descriptions. Several run configurations can use the same
    target.
    """
    project = get_project(folder)
    if target not in project.computes():
        raise UnknownName("compute target", target, project.computes(), otherwise=attach_hint(target))
    path = create_runconfig(project.folder, name, {"Target": target, "Framework": "Python"}, force=force)
    render.message(f"created {display_path(path)}")
    render.message(f"hint: use it with: mlw submit -c {shlex.quote(name)} {shlex.quote(project.script())}")


@runconfiguration.command("list", epilog='Example: mlw runconfiguration list --query "[].name"')
@project_option
@result_options
def list_runconfigs(folder: str | None, output: str, query: str | None) -> None:
    """List run configurations."""
    project = get_project(folder)
    rows = [_row(project, name) for name in project.runconfigs()]
    if not rows:
        render.message("no run configurations")
    render.emit(rows, output=output, query=query, columns=_COLUMNS)


def _row(project: Project, name: str) -> dict[str, str | None]:
    path = project.runconfig_file(name)
    if path.suffix == OLD_SUFFIX:
        render.message(f"hint: {display_path(path)} has an outdated extension; rename it to {name}.runconfig")
    try:
        runconfig = project.runconfig(name)
    except ConfigError as error:
        render.warn(error.message)  # still list the others
        return dict.fromkeys(_COLUMNS) | {"name": name}
    script = runconfig.argument_vector[0] if runconfig.argument_vector else None
    return {"name": name, "target": runconfig.target, "framework": runconfig.framework, "script": script}


@runconfiguration.command(epilog="Example: mlw runconfiguration delete -n gpu")
@click.option("-n", "--name", required=True, help="Name of the run configuration")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation")
@project_option
@global_options
def delete(name: str, yes: bool, folder: str | None) -> int:
    """Delete a run configuration.

    Earlier runs keep their copy of it.
    """
    path = get_project(folder).runconfig_file(name)
    if not yes and render.is_terminal(sys.stdin) and not click.confirm(f"Delete {display_path(path)}?", err=True):
        render.message("nothing was deleted")
        return 1
    try:
        os.unlink(path)
    except OSError as error:
        raise ConfigError(f"cannot delete the file: {error.strerror}", path=display_path(path)) from None
    render.message(f"deleted {display_path(path)}")
    return 0
