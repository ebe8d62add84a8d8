"""``mlw gpus``: show the GPUs of a machine and the processes using them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

import click

from ..errors import LaunchError, MlwError
from ..hosts.gpu_values import Gpus, fetch_gpus
from ..paths import user_paths
from ..report.gpu_report import line, row, summary
from ..report.slurm_report import GPU_COLUMNS, describe_gpus, gpu_rows
from ..targets.gpu_check import remedy
from ..targets.slurm_facts import SlurmFacts, fetch_slurm_facts
from ..targets.target import Target
from ..targets.target_factory import open_target
from ..targets.types import Feature
from . import render
from .completion_types import complete_target
from .options import get_project, project_option, result_options

_REFRESH_SECONDS, _SCHEDULER_REFRESH_SECONDS = 2.0, 10.0
_CLEAR = b"\x1b[H\x1b[2J"  # clear the screen, as `watch` does
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

    Lists runs by ID and other processes by user. Values that a GPU does not report are left empty. For a Slurm cluster,
    shows the GPUs of each partition: how many there are, and how many are free.
    """
    opened = _open(target, folder)
    where, scheduled = target or "this machine", opened.type.has(Feature.SCHEDULER_GPUS)
    while True:
        clear = watch and render.is_terminal(sys.stdout)
        if scheduled:
            _print_partitions(fetch_slurm_facts(opened.host, nodes_only=True), where, output, query, clear=clear)
        else:
            _print_gpus(fetch_gpus(opened.host), where, output, query, clear=clear)
        if not watch:
            return
        time.sleep(_SCHEDULER_REFRESH_SECONDS if scheduled else _REFRESH_SECONDS)


def _open(target: str | None, folder: str | None) -> Target:
    if target is not None:
        return open_target(get_project(folder).compute(target), user_paths())
    from ..hosts.local_host import LocalHost  # noqa: PLC0415

    return Target(LocalHost(user_paths().root, os.environ))


def _print_partitions(facts: SlurmFacts, where: str, output: str, query: str | None, clear: bool) -> None:
    if facts.problem:
        raise LaunchError(f"{where}: {facts.reason}", f"mlw computetarget check {where}")
    if clear:
        render.write_bytes(_CLEAR)
    rows = gpu_rows(facts)
    if not rows and output == "table" and query is None:
        render.message(f"no partition of {where} has GPUs")
        return
    render.emit(rows, output=output, query=query, columns=GPU_COLUMNS)


def _print_gpus(gpus_info: Gpus, where: str, output: str, query: str | None, clear: bool) -> None:
    if clear:
        render.write_bytes(_CLEAR)
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


def gpu_section(open_it: Callable[[], Target], is_table: bool) -> dict[str, object]:
    """Return the GPUs for ``computetarget show``. An unreachable machine only causes a warning."""
    try:
        opened = open_it()
        if opened.type.has(Feature.SCHEDULER_GPUS):
            facts = fetch_slurm_facts(opened.host, nodes_only=True)
            return {"GPUs": describe_gpus(facts)} if is_table else {"gpus": gpu_rows(facts)}
        gpus_info = fetch_gpus(opened.host)
    except MlwError as error:
        render.warn(f"cannot query GPUs: {error.message}")
        return {} if is_table else {"gpus": None}
    if not is_table:
        return {"gpus": asdict(gpus_info)}
    if gpus_info.problem:
        return {"GPUs": gpus_info.problem}
    texts: dict[str, object] = {"GPUs": f"{len(gpus_info.gpus)}, {summary(gpus_info)}" if gpus_info.gpus else "none"}
    return {**texts, **{f"GPU {gpu.index}": line(gpu) for gpu in gpus_info.gpus}}
