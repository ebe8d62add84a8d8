"""``mlw gpus``: show the GPUs of a machine and the processes using them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

import click

from ..errors import MlwError
from ..hosts.gpu_values import Gpus, fetch_gpus
from ..hosts.host import Host
from ..paths import user_paths
from ..report.gpu_report import line, row, summary
from ..targets.gpu_check import remedy
from ..targets.target_factory import open_target
from . import render
from .completion_types import complete_target
from .options import get_project, project_option, result_options

_REFRESH_SECONDS = 2.0
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
@project_option
@result_options
def gpus(target: str | None, watch: bool, folder: str | None, output: str, query: str | None) -> None:
    """Show GPUs and the processes using them.

    Lists runs by ID and other processes by user. Values that a GPU does not report are left empty.
    """
    host = _host(target, folder)
    where = target or "this machine"
    while True:
        _print_gpus(fetch_gpus(host), where, output, query, clear=watch and render.is_terminal(sys.stdout))
        if not watch:
            return
        time.sleep(_REFRESH_SECONDS)


def _host(target: str | None, folder: str | None) -> Host:
    if target is not None:
        return open_target(get_project(folder).compute(target), user_paths()).host
    from ..hosts.local_host import LocalHost  # noqa: PLC0415

    return LocalHost(user_paths().root, os.environ)


def _print_gpus(gpus_info: Gpus, where: str, output: str, query: str | None, clear: bool) -> None:
    if clear:
        render.write_bytes(b"\x1b[H\x1b[2J")  # clear the screen, as `watch` does
    if output != "table" or query is not None:
        render.emit(asdict(gpus_info), output=output, query=query)
        return
    if gpus_info.problem:
        render.warn(f"{where}: {gpus_info.problem}")
        hint = remedy(gpus_info.problem_code)
        if hint:
            render.message(f"hint: {hint}")
    elif not gpus_info.gpus:
        render.message(f"{where} has no NVIDIA GPU")
    if gpus_info.gpus:
        columns = [name for name in _COLUMNS if name != "slices" or any(gpu.mig for gpu in gpus_info.gpus)]
        render.emit([row(gpu) for gpu in gpus_info.gpus], output=output, columns=columns)
        render.message(summary(gpus_info))


def gpu_section(open_host: Callable[[], Host], is_table: bool) -> dict[str, object]:
    """Return the GPUs for ``computetarget show``. An unreachable machine only causes a warning."""
    try:
        gpus_info = fetch_gpus(open_host())
    except MlwError as error:
        render.warn(f"cannot query GPUs: {error.message}")
        return {} if is_table else {"gpus": None}
    if not is_table:
        return {"gpus": asdict(gpus_info)}
    if gpus_info.problem:
        return {"GPUs": gpus_info.problem}
    facts: dict[str, object] = {"GPUs": f"{len(gpus_info.gpus)}, {summary(gpus_info)}" if gpus_info.gpus else "none"}
    return {**facts, **{f"GPU {gpu.index}": line(gpu) for gpu in gpus_info.gpus}}
