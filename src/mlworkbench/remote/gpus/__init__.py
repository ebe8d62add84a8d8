"""NVIDIA GPUs of this machine: what is there, who uses it, what a run did with it. Loaded where there may be one."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict

_FIGURES = "uuid name capability memory_total memory_used memory_free utilisation temperature power power_limit"


def empty(index: int) -> Dict[str, Any]:
    """A GPU of which nothing is known. What stays unknown is None, never 0."""
    gpu: Dict[str, Any] = {"index": index}
    gpu.update(dict.fromkeys(_FIGURES.split()), bus_id=None, memory_clock=None)
    gpu.update(mig=[], processes=None, error=None)
    return gpu
