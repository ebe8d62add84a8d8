"""Decide whether a launcher such as torchrun starts the script in several processes. Performs no I/O."""

from __future__ import annotations

from .errors import UsageError
from .frameworks.framework import Setting
from .model import JsonDict
from .remote.shared.process_launchers import NONE, PER_GPU
from .submit_request import Request


def plan_processes(request: Request, setting: Setting, gpu_request: str | None) -> JsonDict | None:
    """Return the key ``processes`` of a run's spec, or None if no launcher is used."""
    runconfig = setting.runconfig
    launcher = request.launcher or runconfig.launcher
    if launcher == NONE:
        if request.process_count is not None:
            raise UsageError("--processes requires a launcher", "add --launcher torchrun")
        return None
    if runconfig.framework == "PySpark" and setting.entry.kind != "command":
        raise UsageError(
            f"{launcher} cannot start PySpark scripts",
            f"set Framework: Python in aml_config/{runconfig.name}.runconfig",
        )
    has_gpus = gpu_request not in (None, "none")
    count = request.process_count or runconfig.processes_per_node or (PER_GPU if has_gpus else "1")
    if count == PER_GPU and not has_gpus:
        raise UsageError("one process per GPU requires GPUs", "add --gpus 2, or set the number with --processes 4")
    return {"launcher": launcher, "count": count, "python": setting.python, "library": setting.inrun}
