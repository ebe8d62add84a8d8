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
from ..request import Request
from ..resubmit import Again, again, request_again, typed_command
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
def rerun(run: str | None, folder: str | None, **asked: Any) -> int:
    """Submit a run again.

    The new run has the same script, arguments, run configuration, GPUs, variables, and environment. It uses the
    current code of the project.
    """
    from .submit import Presentation, submit_request  # noqa: PLC0415 - slow to import

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
    request = _request(given, asked)
    history.close()
    render.message(f"note: rerun of {found.id}: {plain(typed_command(request), 300)}")
    return submit_request(request, Presentation.of(asked), str(given.project.root), dry_run=asked["dry_run"])


def _request(given: Again, asked: dict[str, Any]) -> Request:
    spec = given.run.spec
    if spec.runconfig and spec.runconfig not in given.configurations:
        raise UnknownName("run configuration", spec.runconfig, given.configurations)
    request = request_again(
        given,
        configuration=spec.runconfig or "",
        script=spec.entry.name,
        arguments=given.arguments,
        locked=asked["locked"] and given.locked,
        name=asked["name"] or "",
    )
    usual = given.project.runconfig(spec.runconfig).target if spec.runconfig else None
    return replace(request, target=spec.compute.name) if usual != spec.compute.name else request
