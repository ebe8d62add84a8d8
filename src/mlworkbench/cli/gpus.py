"""``mlw gpus``: the GPUs of a machine and who uses them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

import click

from ..errors import MlwError
from ..hosts.gpus import Gpus, ask_gpus
from ..hosts.host import Host
from ..paths import user_paths
from ..report.gpus import line, row, summary
from ..targets.gpucheck import remedy
from ..targets.opening import open_target
from . import render
from .completion import complete_target
from .options import in_project, rendering, the_project

_PAUSE = 2.0
_COLUMNS = "gpu name compute memory free load temperature power slices used_by uuid".split()


@click.command(epilog="Example: mlw gpus -t my_dsvm --watch")
@click.option(
    "-t",
    "--target",
    metavar="NAME",
    shell_complete=complete_target,
    help="Compute target (default: this machine)",
)
@click.option("--watch", is_flag=True, help="Refresh every 2 seconds until Ctrl-C")
@in_project
@rendering
def gpus(target: str | None, watch: bool, folder: str | None, output: str, query: str | None) -> None:
    """Show GPUs and the processes using them.

    Lists runs by ID and other processes by user. Values that a GPU does not report are left empty.
    """
    host = _host(target, folder)
    where = target or "this machine"
    while True:
        _show(ask_gpus(host), where, output, query, first=watch and render.terminal(sys.stdout))
        if not watch:
            return
        time.sleep(_PAUSE)


def _host(target: str | None, folder: str | None) -> Host:
    if target is not None:
        return open_target(the_project(folder).compute(target), user_paths()).host
    from ..hosts.local import LocalHost  # noqa: PLC0415

    return LocalHost(user_paths().root, os.environ)


def _show(found: Gpus, where: str, output: str, query: str | None, first: bool) -> None:
    if first:
        render.pour(b"\x1b[H\x1b[2J")  # a screen of its own, as `watch` makes it
    if output != "table" or query is not None:
        render.emit(asdict(found), output=output, query=query)
        return
    if found.problem:
        render.warn(f"{where}: {found.problem}")
        hint = remedy(found.problem)
        if hint:
            render.message(f"hint: {hint}")
    elif not found.gpus:
        render.message(f"{where} has no NVIDIA GPU")
    if found.gpus:
        shown = [name for name in _COLUMNS if name != "slices" or any(one.mig for one in found.gpus)]
        render.emit([row(one) for one in found.gpus], output=output, columns=shown)
        render.message(summary(found))


def section(look: Callable[[], Host], tidy: bool) -> dict[str, object]:
    """The GPUs as a part of `computetarget show`; a machine that cannot be asked is no reason to show nothing."""
    try:
        found = ask_gpus(look())
    except MlwError as error:
        render.warn(f"cannot query GPUs: {error.message}")
        return {} if tidy else {"gpus": None}
    if not tidy:
        return {"gpus": asdict(found)}
    if found.problem:
        return {"GPUs": found.problem}
    told: dict[str, object] = {"GPUs": f"{len(found.gpus)}, {summary(found)}" if found.gpus else "none"}
    return {**told, **{f"GPU {one.index}": line(one) for one in found.gpus}}
