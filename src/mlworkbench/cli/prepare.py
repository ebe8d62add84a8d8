"""``mlw experiment prepare``: the environment, ahead of the run that needs it."""

from __future__ import annotations

import os
import shlex

import click

from .. import submit as submitting
from ..environments.choose import choose_environment
from ..paths import user_paths
from ..plan import Request
from ..targets.ground import survey
from . import render
from .completion import complete_runconfig, complete_target
from .options import in_project, rendering, the_project


@click.command(epilog="Example: mlw experiment prepare -c local")
@click.option(
    "-c",
    "--run-configuration",
    "runconfig",
    metavar="NAME",
    shell_complete=complete_runconfig,
    help="aml_config/NAME.runconfig",
)
@click.option(
    "-t", "--target", metavar="NAME", shell_complete=complete_target, help="On aml_config/NAME.compute instead."
)
@in_project
@rendering
def prepare(runconfig: str | None, target: str | None, folder: str | None, output: str, query: str | None) -> None:
    """Make the environment of a run configuration ready, and say which Python its scripts get."""
    here, paths = the_project(folder), user_paths()
    chosen, compute = submitting.choose(here, Request(runconfig=runconfig, target=target))
    submitting.framework_of(chosen)  # what a submit would refuse is refused here
    opened = submitting.open_target(compute, paths)
    host = opened.host
    survey(opened, compute, paths)  # an engine that is missing is told now
    environment = choose_environment(compute, os.environ, here.root, paths.interpreters)
    lock = environment.lock()
    steps = environment.steps(lock, host.root.path)
    found = {
        "run_configuration": chosen.name,
        "target": compute.name,
        "environment": lock["kind"],
        "python": lock["python"],
        "python_version": lock["version"],
        "python_because": environment.interpreter.reason,
        "steps": [shlex.join(step.argv) for step in steps],
    }
    if output == "table" and query is None and not steps:
        del found["steps"]
    render.emit(found, output=output, query=query)
    if not steps:
        render.message(f"nothing has to be built: target {compute.name} uses the Python that is there")
