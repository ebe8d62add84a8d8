"""``mlw rerun``: submit a run again, like Rerun in the browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..errors import UnknownName, UsageError
from ..history.store import History
from ..paths import user_paths
from ..resubmit import PreviousRun, find_previous_run, rerun_request, typed_command
from ..sanitize import plain
from ..submit_request import Request
from . import render
from .completion_types import complete_run
from .options import project_option, result_options
from .run_lookup import find_run

_LOCKED_HELP = "Reuse the exact environment of RUN (default), or re-resolve dependencies"


@click.command(epilog="Example: mlw rerun demo-swift --detach")
@click.argument("run", required=False, metavar="RUN", shell_complete=complete_run)
@click.option("--wait/--detach", default=True, help="Stream the output until the run ends (default), or return at once")
@click.option("--locked/--no-locked", default=True, help=_LOCKED_HELP)
@click.option("--name", help="Display name of the new run")
@click.option("--dry-run", is_flag=True, help="Print the run specification as JSON; submit nothing")
@project_option
@result_options
def rerun(run: str | None, folder: str | None, **options: Any) -> int:
    """Submit a run again.

    The new run has the same script, arguments, run configuration, GPUs, variables, and environment. It uses the
    current code of the project.
    """
    from .submit import Presentation, submit_request  # noqa: PLC0415 - slow to import

    history = History(user_paths())
    selected = find_run(history, run, folder)
    if run is None:
        raise UsageError("no run given", f"rerun the newest run with 'mlw rerun {selected.id}'")
    previous = find_previous_run(
        history,
        selected.id,
        [Path(folder) if folder else Path.cwd()],
        "specify its folder with 'mlw rerun RUN --project PATH'",
    )
    request = _build_request(previous, options)
    history.close()
    render.message(f"note: rerun of {selected.id}: {plain(typed_command(request), 300)}")
    return submit_request(request, Presentation.of(options), str(previous.project.root), dry_run=options["dry_run"])


def _build_request(previous: PreviousRun, options: dict[str, Any]) -> Request:
    spec = previous.run.spec
    if spec.runconfig and spec.runconfig not in previous.configurations:
        raise UnknownName("run configuration", spec.runconfig, previous.configurations)
    request = rerun_request(
        previous,
        configuration=spec.runconfig or "",
        script=spec.entry.name,
        arguments=previous.arguments,
        locked=options["locked"] and previous.locked,
        name=options["name"] or "",
    )
    default_target = previous.project.runconfig(spec.runconfig).target if spec.runconfig else None
    return replace(request, target=spec.compute.name) if default_target != spec.compute.name else request
