"""Choose the GPUs for a run from the inventory, considering which are held. Pure functions."""

from __future__ import annotations

from ..shared.failure import Failed
from ..shared.gpu_request import COUNT, FREE, LIST, Request

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Container, Dict, List, Optional, Tuple

    Gpu = Dict[str, Any]

IN_USE_SHARE = 0.05  # a GPU counts as in use if more than this share of its memory is used
_MAX_LISTED = 4


class GpuUnavailable(Failed):
    """A request that the target can never fulfill, so waiting would not help."""

    code, explain = "gpu-unavailable", "gpu-queued"


def find_candidates(request: Request, inventory: Dict[str, Any]) -> List[Gpu]:
    """Return the GPUs that can fulfill the request, in index order.

    Raise GpuUnavailable if there can never be enough.
    """
    gpus = sorted(inventory["gpus"], key=lambda gpu: gpu["index"])
    if not gpus:
        why = inventory.get("problem")
        raise GpuUnavailable("the target has no usable GPU" + (": %s" % why if why else ""))
    if request.kind == LIST:
        unknown = [identifier for identifier in request.ids if not any(_matches_id(gpu, identifier) for gpu in gpus)]
        if unknown:
            raise GpuUnavailable("the target has no GPU %s; it has %s" % (", ".join(unknown), describe_gpus(gpus)))
    fitting = [gpu for gpu in gpus if request.fits(gpu)]
    usable = [gpu for gpu in fitting if gpu.get("uuid") and not gpu.get("error")]
    needed = len(fitting) if request.kind == LIST else minimum_count(request, len(usable))
    if len(usable) < max(1, needed):
        broken = ["GPU %s: %s" % (gpu["index"], gpu["error"]) for gpu in gpus if gpu.get("error")]
        more = "; " + "; ".join(broken) if broken else ""
        raise GpuUnavailable("the target cannot provide %s; it has %s%s" % (request, describe_gpus(gpus), more))
    return usable


def minimum_count(request: Request, fitting: int) -> int:
    """Return the minimum number of GPUs that the request needs if ``fitting`` GPUs match it."""
    return {COUNT: request.count, FREE: 1}.get(request.kind, fitting)


def pick_gpus(
    request: Request, candidates: List[Gpu], taken: Dict[str, str], reserved: Dict[str, str]
) -> Tuple[List[str], Optional[str]]:
    """Return the UUIDs of the chosen GPUs and None, or an empty list and the reason to wait.

    Both mappings contain reasons by UUID: ``taken`` describes the current use of a GPU, and ``reserved``
    names the earlier run that may receive it.
    """
    free = [gpu["uuid"] for gpu in candidates if gpu["uuid"] not in taken and gpu["uuid"] not in reserved]
    if len(free) >= minimum_count(request, len(candidates)):
        return free[: request.count] if request.kind == COUNT else free, None
    reasons: Dict[str, List[str]] = {}
    for gpu in candidates:
        why = taken.get(gpu["uuid"]) or reserved.get(gpu["uuid"])
        if why:
            reasons.setdefault(why, []).append(str(gpu["index"]))
    messages = ["GPU %s %s" % (", ".join(numbers), why) for why, numbers in reasons.items()]
    more = "; and %d more" % (len(messages) - _MAX_LISTED) if len(messages) > _MAX_LISTED else ""
    return [], "; ".join(messages[:_MAX_LISTED]) + more


def describe_use(gpu: Gpu, ignored: Container[int] = ()) -> Optional[str]:
    """Describe the processes that compute on the GPU or use its memory. Return None if the GPU is free.

    Graphics processes do not count.
    """
    processes = gpu.get("processes") or []
    computing = [
        process for process in processes if process.get("kind") != "graphics" and process.get("pid") not in ignored
    ]
    if computing:
        return "used by " + ", ".join(_describe_process(process) for process in computing[:_MAX_LISTED])
    used, total = gpu.get("memory_used"), gpu.get("memory_total")
    if not used or not total:
        return None
    drawing = sum(process.get("memory") or 0 for process in processes if process.get("kind") == "graphics")
    if used - drawing > total * IN_USE_SHARE:
        return "used by unknown processes: %d %% of its memory is in use" % round(100.0 * (used - drawing) / total)
    return None


def _describe_process(process: Dict[str, Any]) -> str:
    details = [process["name"]] if process.get("name") else []
    details += ["user %s" % process["user"]] if process.get("user") else []
    return "process %s%s" % (process["pid"], " (%s)" % ", ".join(details) if details else "")


def describe_gpus(gpus: List[Gpu]) -> str:
    """Describe GPUs in the form ``2 GPUs: 0 NVIDIA H200 (139.8 GiB), 1 …``."""
    descriptions = ["%s %s%s" % (gpu["index"], gpu.get("name") or "unknown", _format_memory(gpu)) for gpu in gpus[:8]]
    more = ", and %d more" % (len(gpus) - 8) if len(gpus) > 8 else ""
    return "%d GPU%s: %s%s" % (len(gpus), "" if len(gpus) == 1 else "s", ", ".join(descriptions), more)


def _format_memory(gpu: Gpu) -> str:
    return " (%.1f GiB)" % (gpu["memory_total"] / 1024**3) if gpu.get("memory_total") else ""


def _matches_id(gpu: Gpu, name: str) -> bool:
    return name in (str(gpu.get("index")), gpu.get("uuid"))
