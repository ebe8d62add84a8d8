"""``mlw rerun``: submit a run again, as Rerun in the browser does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..errors import UnknownName, UsageError
from ..history.store import History
from ..paths import user_paths
from ..report.plain import plain
from ..resubmit import Again, Submit, again, words
from . import render
from .completion import complete_run
from .opening import find_run
from .options import in_project, rendering

_LOCKED = "Reuse the exact environment of RUN (default), or re-resolve dependencies"


@click.command(epilog="Example: mlw rerun demo-swift --detach")
@click.argument("run", required=False, metavar="RUN", shell_complete=complete_run)
@click.option("--wait/--detach", default=True, help="Stream the output until the run ends (default), or return at once")
@click.option("--locked/--no-locked", default=True, help=_LOCKED)
@click.option("--name", help="Display name of the new run")
@click.option("--dry-run", is_flag=True, help="Print the run specification as JSON; submit nothing")
@in_project
@rendering
@click.pass_context
def rerun(ctx: click.Context, /, run: str | None, folder: str | None, **asked: Any) -> int:
    """Submit a run again.

    The new run has the same script, arguments, run configuration, GPUs, variables, and environment. It uses the
    current code of the project.
    """
    from .submit import submit  # noqa: PLC0415 - takes long to import, and `mlw rerun --help` needs none of it

    history = History(user_paths())
    found = find_run(history, run, folder)
    if run is None:
        raise UsageError("no run given", f"rerun the newest run with 'mlw rerun {found.id}'")
    given = again(
        history,
        found.id,
        [Path(folder) if folder else Path.cwd()],
        "specify its folder with 'mlw rerun RUN --project PATH'",
    )
    made = _submit(given, asked)
    history.close()
    render.message(f"note: rerun of {found.id}: {plain(made.typed(), 300)}")
    options = [f"--project={given.project.root}", f"--output={asked['output']}"]
    options += [f"--query={asked['query']}"] if asked["query"] is not None else []
    options += [] if asked["wait"] else ["--detach"]
    options += ["--dry-run"] if asked["dry_run"] else []
    below = submit.make_context("submit", [*options, *made.options()], parent=ctx.parent)
    with below:
        code: int = submit.invoke(below)
    return code


def _submit(given: Again, asked: dict[str, Any]) -> Submit:
    spec = given.run.spec
    if spec.runconfig and spec.runconfig not in given.configurations:
        raise UnknownName("run configuration", spec.runconfig, given.configurations)
    made = words(
        given,
        configuration=spec.runconfig or "",
        script=spec.entry.name,
        arguments=given.arguments,
        locked=asked["locked"] and given.locked,
        name=asked["name"] or "",
    )
    usual = given.project.runconfig(spec.runconfig).target if spec.runconfig else None
    return replace(made, target=spec.compute.name) if usual != spec.compute.name else made
