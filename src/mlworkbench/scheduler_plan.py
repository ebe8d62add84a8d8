"""Decide what a run requests from the scheduler of its target. Performs no I/O."""

from __future__ import annotations

import math

from .errors import UsageError
from .model import Compute, JsonDict, RunConfig, RunSpec
from .remote.shared.gpu_request import COUNT, NONE, parse
from .remote.shared.retry_causes import MAX_DELAY, NODE_FAILURE, PREEMPTED
from .retries import Retries
from .slurm_options import parse_time_limit
from .submit_request import Request
from .targets.types import SLURM_STARTER, type_of

# Seconds to prepare the run and to save its results. Slurm gives notice of the limit up to two minutes in advance.
_MARGIN = 120.0
_GRACE = RunSpec.grace
_GPU_EXAMPLES = "--gpus 2, or --gpus a100:2"


def plan_scheduler(request: Request, runconfig: RunConfig, compute: Compute) -> JsonDict | None:
    """Return the key ``scheduler`` of a run's spec, or None if the target has no scheduler.

    ``time`` is in seconds; None means the limit of the partition. ``options`` are arguments of sbatch.
    """
    if type_of(compute).starter != SLURM_STARTER:
        return None
    gpus, model = _gpus(request.gpu_request or runconfig.gpus)
    retries = planned_retries(request, runconfig)
    options = [f"--cpus-per-task={math.ceil(float(compute.cpus))}"] if compute.cpus else []
    options += [f"--mem={_mebibytes(compute.memory)}M"] if compute.memory else []
    return {
        "partition": compute.partition,
        "account": compute.account,
        "qos": compute.qos,
        "constraint": compute.constraint,
        "time": _time(compute, request.time_limit, retries),
        "setup": list(compute.set_up),
        "options": [*options, *compute.extra_options],
        "nodes": 1,
        "gpus": gpus,
        "gpu_model": model,
        "requeue": retries is None or bool({PREEMPTED, NODE_FAILURE} & set(retries.causes)),
    }


def _gpus(text: str | None) -> tuple[int | None, str | None]:
    """Return the number of GPUs and their model. Slurm cannot allocate GPUs by index or by memory size."""
    if text is None:
        return None, None
    request = parse(text)
    if request.kind == NONE:
        return None, None
    if request.kind != COUNT or request.min_memory:
        raise UsageError(f"--gpus {text}: Slurm allocates GPUs by number and model only", f"use {_GPU_EXAMPLES}")
    model = request.model and request.model.replace(" ", "_")
    return request.count, model


def planned_retries(request: Request, runconfig: RunConfig) -> Retries | None:
    return request.planned_retries(Retries(runconfig.retries, runconfig.retry_on, runconfig.retry_delay))


def needed_time(timeout: float, retries: Retries | None) -> float:
    """Return the seconds that a job needs for all attempts of a run with a time limit per attempt."""
    limit, delay = (retries.limit, retries.delay) if retries else (0, 0.0)
    delays = [min(MAX_DELAY, delay * 2.0 ** min(number, 20)) for number in range(limit)]
    return (timeout + _GRACE) * (1 + len(delays)) + sum(delays) + _MARGIN


def _time(compute: Compute, timeout: float | None, retries: Retries | None) -> int | None:
    configured = parse_time_limit(compute.time) if compute.time else None
    needed = None if timeout is None else math.ceil(needed_time(timeout, retries) / 60) * 60
    return min((limit for limit in (configured, needed) if limit is not None), default=None)


_UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}


def _mebibytes(amount: str) -> int:
    """Return an amount such as ``16g`` in MiB. Without a unit, it is in bytes, as for containers."""
    unit = _UNITS.get(amount[-1:].lower())
    number = float(amount if unit is None else amount[:-1])
    return max(1, math.ceil(number / 1024**2 if unit is None else number * unit))
