"""Options that many commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..config.project import Project, find_project
from ..errors import ConfigError, UsageError
from .command import GLOBAL, no_color, under
from .completion import complete_runconfig, complete_target
from .render import FORMATS, terminal

Function = TypeVar("Function", bound=Callable[..., Any])

ALLOW_MOUNT = "Folder that containers may mount; PATH:ro allows the folder and its subfolders, read-only (repeatable)"
ALLOW_NETWORK = "Network that containers may join, such as host (repeatable)"


def debugging(function: Function) -> Function:
    """The options of every command."""
    help = "Show tracebacks"
    debug = click.option("--debug", is_flag=True, expose_value=False, callback=_note_debugging, help=help)
    return under(GLOBAL, debug, no_color)(function)


def _note_debugging(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        os.environ["MLW_DEBUG"] = "1"  # cli/main looks there when something has failed


def rendering(function: Function) -> Function:
    """-o and --query, as the original had them."""
    query = click.option("--query", metavar="JMESPATH", help="Filter the result with a JMESPath expression")
    kinds = click.Choice(FORMATS)
    help = f"Output format: {', '.join(FORMATS)}"
    output = click.option("-o", "--output", type=kinds, default="table", metavar="FORMAT", help=help)
    return under(GLOBAL, output, query)(debugging(function))


def run_configuration(
    help: str = "Run configuration to use (aml_config/NAME.runconfig)",
) -> Callable[[Function], Function]:
    """-c NAME."""
    return click.option(
        "-c", "--run-configuration", "runconfig", metavar="NAME", shell_complete=complete_runconfig, help=help
    )


def another_target(function: Function) -> Function:
    """-t NAME."""
    help = "Compute target (overrides the run configuration)"
    return click.option("-t", "--target", metavar="NAME", shell_complete=complete_target, help=help)(function)


def making_environments(function: Function) -> Function:
    """How the environment is made, where it is ours to make."""
    for name, help in (
        ("--send-packages", "Upload all packages from this machine; for targets without internet access"),
        ("--unchecked", "Skip compatibility checks"),
        ("--upgrade", "Re-resolve dependencies to their newest versions"),
    ):
        function = click.option(name, is_flag=True, help=help)(function)
    help = "Let a source package run its build script on this machine; saved in your settings (repeatable)"
    return click.option("--allow-build", "allow_builds", multiple=True, metavar="NAME", help=help)(function)


def in_project(function: Function) -> Function:
    help = "Project folder (default: the current directory)"
    return under(GLOBAL, click.option("--project", "folder", metavar="PATH", help=help))(function)


def the_project(folder: str | None) -> Project:
    return find_project(Path(folder) if folder else Path.cwd())


def confirm(question: str) -> None:
    """Go on only with the user's word, which may come through a pipe."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if terminal(sys.stdin):
            raise
        click.echo(err=True)
        raise UsageError("cannot prompt: no terminal", "use --yes to confirm") from None
    if not agreed:
        raise click.Abort


def maybe_project(folder: str | None) -> Project | None:
    """The project here, or none: verbs that look at runs also work outside of projects."""
    if folder:
        return the_project(folder)
    try:
        return the_project(None)
    except ConfigError:
        return None
