"""Options shared by many commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..config.project_folder import Project, find_project
from ..errors import ConfigError, UsageError
from .command import GLOBAL_SECTION, no_color, option_section
from .completion_types import complete_runconfig, complete_target
from .render import FORMATS, is_terminal

Function = TypeVar("Function", bound=Callable[..., Any])

ALLOW_MOUNT = "Folder that containers may mount; PATH:ro allows the folder and its subfolders, read-only (repeatable)"
ALLOW_NETWORK = "Network that containers may join, such as host (repeatable)"


def global_options(function: Function) -> Function:
    """Add the options that every command has."""
    help = "Show tracebacks"
    debug = click.option("--debug", is_flag=True, expose_value=False, callback=_enable_debug, help=help)
    return option_section(GLOBAL_SECTION, debug, no_color)(function)


def _enable_debug(context: click.Context, parameter: click.Parameter, enable: bool) -> None:
    if enable:
        os.environ["MLW_DEBUG"] = "1"  # cli/main reads this if a command fails


def result_options(function: Function) -> Function:
    """Add ``-o`` and ``--query``."""
    query = click.option("--query", metavar="JMESPATH", help="Filter the result with a JMESPath expression")
    kinds = click.Choice(FORMATS)
    help = f"Output format: {', '.join(FORMATS)}"
    output = click.option("-o", "--output", type=kinds, default="table", metavar="FORMAT", help=help)
    return option_section(GLOBAL_SECTION, output, query)(global_options(function))


def run_configuration_option(
    help: str = "Run configuration to use (aml_config/NAME.runconfig)",
) -> Callable[[Function], Function]:
    """Add ``-c NAME``."""
    return click.option(
        "-c", "--run-configuration", "runconfig", metavar="NAME", shell_complete=complete_runconfig, help=help
    )


def target_option(function: Function) -> Function:
    """Add ``-t NAME``."""
    help = "Compute target (overrides the run configuration)"
    return click.option("-t", "--target", metavar="NAME", shell_complete=complete_target, help=help)(function)


def environment_options(function: Function) -> Function:
    """Add the options for building managed environments."""
    for name, help in (
        ("--send-packages", "Upload all packages from this machine; for targets without internet access"),
        ("--unchecked", "Skip compatibility checks"),
        ("--upgrade", "Re-resolve dependencies to their newest versions"),
    ):
        function = click.option(name, is_flag=True, help=help)(function)
    help = "Let a source package run its build script on this machine; saved in your settings (repeatable)"
    return click.option("--allow-build", "allow_builds", multiple=True, metavar="NAME", help=help)(function)


def project_option(function: Function) -> Function:
    help = "Project folder (default: the current directory)"
    return option_section(GLOBAL_SECTION, click.option("--project", "folder", metavar="PATH", help=help))(function)


def get_project(folder: str | None) -> Project:
    return find_project(Path(folder) if folder else Path.cwd())


def confirm(question: str) -> None:
    """Ask for confirmation, which may be piped to stdin. Raise if the user declines."""
    try:
        is_confirmed = click.confirm(question, err=True)
    except click.Abort:
        if is_terminal(sys.stdin):
            raise
        click.echo(err=True)
        raise UsageError("cannot prompt: no terminal", "use --yes to confirm") from None
    if not is_confirmed:
        raise click.Abort


def get_project_or_none(folder: str | None) -> Project | None:
    """Return the current project or None, for commands that also work outside projects."""
    if folder:
        return get_project(folder)
    try:
        return get_project(None)
    except ConfigError:
        return None
