"""Which GPUs a run gets, from what is there and who has what. Pure."""

from __future__ import annotations

from ..shared.failure import Failed
from ..shared.gpu_request import COUNT, FREE, LIST, Request

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Container, Dict, List, Optional, Tuple

    Gpu = Dict[str, Any]

TAKEN = 0.05  # share of a GPU's memory from which on it is somebody's
_NAMED = 4


class Impossible(Failed):
    """Waiting would not help, and why."""

    code, explain = "gpu-unavailable", "gpu-queued"


def candidates(request: Request, looked: Dict[str, Any]) -> List[Gpu]:
    """The GPUs that the request may get, by their numbers; raises Impossible if there are too few for ever."""
    gpus = sorted(looked["gpus"], key=lambda gpu: gpu["index"])
    if not gpus:
        why = looked.get("problem")
        raise Impossible("the target has no usable GPU" + (": %s" % why if why else ""))
    if request.kind == LIST:
        strangers = [one for one in request.ids if not any(_is(gpu, one) for gpu in gpus)]
        if strangers:
            raise Impossible("the target has no GPU %s; it has %s" % (", ".join(strangers), describe(gpus)))
    fitting = [gpu for gpu in gpus if request.fits(gpu)]
    sound = [gpu for gpu in fitting if gpu.get("uuid") and not gpu.get("error")]
    needed = len(fitting) if request.kind == LIST else least(request, len(sound))
    if len(sound) < max(1, needed):
        broken = ["GPU %s: %s" % (gpu["index"], gpu["error"]) for gpu in gpus if gpu.get("error")]
        more = "; " + "; ".join(broken) if broken else ""
        raise Impossible("the target cannot provide %s; it has %s%s" % (request, describe(gpus), more))
    return sound


def least(request: Request, fitting: int) -> int:
    """How many it cannot do without."""
    return {COUNT: request.count, FREE: 1}.get(request.kind, fitting)


def pick(
    request: Request, fitting: List[Gpu], taken: Dict[str, str], kept: Dict[str, str]
) -> Tuple[List[str], Optional[str]]:
    """UUIDs and None, or none and the reason to wait.

    ``taken``: who has a GPU; ``kept``: for whom it is, who came earlier. Both by UUID.
    """
    free = [gpu["uuid"] for gpu in fitting if gpu["uuid"] not in taken and gpu["uuid"] not in kept]
    if len(free) >= least(request, len(fitting)):
        return free[: request.count] if request.kind == COUNT else free, None
    reasons: Dict[str, List[str]] = {}
    for gpu in fitting:
        why = taken.get(gpu["uuid"]) or kept.get(gpu["uuid"])
        if why:
            reasons.setdefault(why, []).append(str(gpu["index"]))
    words = ["GPU %s %s" % (", ".join(numbers), why) for why, numbers in reasons.items()]
    more = "; and %d more" % (len(words) - _NAMED) if len(words) > _NAMED else ""
    return [], "; ".join(words[:_NAMED]) + more


def use_of(gpu: Gpu, ours: Container[int] = ()) -> Optional[str]:
    """Who computes on it, or fills it; None if it is free. Whoever only draws on it does not count."""
    processes = gpu.get("processes") or []
    computing = [one for one in processes if one.get("kind") != "graphics" and one.get("pid") not in ours]
    if computing:
        return "used by " + ", ".join(_process(one) for one in computing[:_NAMED])
    used, total = gpu.get("memory_used"), gpu.get("memory_total")
    if not used or not total:
        return None
    drawing = sum(one.get("memory") or 0 for one in processes if one.get("kind") == "graphics")
    if used - drawing > total * TAKEN:
        return "used by unknown processes: %d %% of its memory is in use" % round(100.0 * (used - drawing) / total)
    return None


def _process(one: Dict[str, Any]) -> str:
    more = [one["name"]] if one.get("name") else []
    more += ["user %s" % one["user"]] if one.get("user") else []
    return "process %s%s" % (one["pid"], " (%s)" % ", ".join(more) if more else "")


def describe(gpus: List[Gpu]) -> str:
    """``2 GPUs: 0 NVIDIA H200 (139.8 GiB), 1 …``"""
    words = ["%s %s%s" % (gpu["index"], gpu.get("name") or "unknown", _memory(gpu)) for gpu in gpus[:8]]
    more = ", and %d more" % (len(gpus) - 8) if len(gpus) > 8 else ""
    return "%d GPU%s: %s%s" % (len(gpus), "" if len(gpus) == 1 else "s", ", ".join(words), more)


def _memory(gpu: Gpu) -> str:
    return " (%.1f GiB)" % (gpu["memory_total"] / 1024**3) if gpu.get("memory_total") else ""


def _is(gpu: Gpu, name: str) -> bool:
    return name in (str(gpu.get("index")), gpu.get("uuid"))
