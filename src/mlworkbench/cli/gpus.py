"""``mlw gpus``: the GPUs of a machine and who uses them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

import click

from ..errors import MlwError
from ..hosts.gpus import Gpu, Gpus, Process, ask_gpus
from ..hosts.host import Host
from ..paths import user_paths
from ..submit import open_target
from ..targets.gpucheck import remedy
from . import render
from .completion import complete_target
from .options import in_project, rendering, the_project

_PAUSE = 2.0
_COLUMNS = "gpu name compute memory free load temperature power slices used_by uuid".split()
_GIB = 1 << 30


@click.command(epilog="Example: mlw gpus -t my_dsvm --watch")
@click.option(
    "-t",
    "--target",
    metavar="NAME",
    shell_complete=complete_target,
    help="The machine of this compute target; this machine if not given.",
)
@click.option("--watch", is_flag=True, help="Look again every 2 seconds, until Ctrl-C.")
@in_project
@rendering
def gpus(target: str | None, watch: bool, folder: str | None, output: str, query: str | None) -> None:
    """Show the GPUs of a machine as they are now: figures, and who uses them.

    Runs are told by their names, processes of others by their users. What a card does not tell is left empty.
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


def summary(found: Gpus) -> str:
    told = [f"NVIDIA driver {found.driver}" if found.driver else None, f"CUDA {found.cuda}" if found.cuda else None]
    told += ["asked through nvidia-smi, as NVML could not be loaded"] if found.source == "nvidia-smi" else []
    return ", ".join(one for one in told if one)


def row(gpu: Gpu) -> dict[str, object]:
    """As people read it."""
    return {
        "gpu": gpu.index,
        "name": gpu.name,
        "compute": gpu.capability,
        "memory": gib(gpu.memory_total),
        "free": gib(gpu.memory_free),
        "load": _unit(gpu.utilisation, " %"),
        "temperature": _unit(gpu.temperature, " °C"),
        "power": _power(gpu),
        "slices": ", ".join(one.name or one.uuid or "?" for one in gpu.mig) or None,
        "used_by": used_by(gpu),
        "uuid": gpu.uuid,
    }


def gib(count: int | None) -> str | None:
    """``139.8 GiB``: as the makers of GPUs count."""
    return None if count is None else f"{count / _GIB:.1f} GiB"


def used_by(gpu: Gpu) -> str | None:
    """Why it cannot be used, or by whom it is; None if it is free, as far as the card tells."""
    if gpu.error:
        return f"does not answer: {gpu.error}"
    words = [_process(one) for one in gpu.processes or () if one.kind != "graphics"]
    drawing = sum(one.kind == "graphics" for one in gpu.processes or ())
    if drawing:
        words.append(f"{drawing} drawing")
    if gpu.held and gpu.held.run not in {one.run for one in gpu.processes or ()}:
        whose = f" of {gpu.held.user}" if gpu.held.user and gpu.held.run is None else ""
        words.insert(0, f"held by run {gpu.held.run}" if gpu.held.run else f"held by a run{whose}")
    return "; ".join(words) or None


def _process(one: Process) -> str:
    size = f", {gib(one.memory)}" if one.memory is not None else ""
    if one.run:
        return f"run {one.run} ({one.name or one.pid}{size})"
    return f"{one.user or 'unknown user'} ({one.name or 'pid'} {one.pid}{size})"


def _unit(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:.0f}{unit}"


def _power(gpu: Gpu) -> str | None:
    if gpu.power is None:
        return None
    return f"{gpu.power:.0f} W" + (f" of {gpu.power_limit:.0f}" if gpu.power_limit else "")


def section(look: Callable[[], Host], tidy: bool) -> dict[str, object]:
    """The GPUs as a part of `computetarget show`; a machine that cannot be asked is no reason to show nothing."""
    try:
        found = ask_gpus(look())
    except MlwError as error:
        render.warn(f"its GPUs are not known: {error.message}")
        return {} if tidy else {"gpus": None}
    if not tidy:
        return {"gpus": asdict(found)}
    if found.problem:
        return {"GPUs": found.problem}
    told: dict[str, object] = {"GPUs": f"{len(found.gpus)}, {summary(found)}" if found.gpus else "none"}
    return {**told, **{f"GPU {one.index}": line(one) for one in found.gpus}}


def line(gpu: Gpu) -> str:
    facts = row(gpu)
    free = f"{facts['free']} of {facts['memory']} free" if gpu.memory_total is not None else None
    kinds = [gpu.name, f"compute {gpu.capability}" if gpu.capability else None, free, facts["load"]]
    words = [
        *kinds,
        facts["temperature"],
        facts["power"],
        facts["slices"],
        gpu.uuid,
        facts["used_by"] or "nobody uses it",
    ]
    return ", ".join(str(one) for one in words if one)
