"""Access to the NVIDIA GPUs of this machine: inventory, leases, measurements, and verdicts.

Imported only on machines that may have a GPU.
"""

from __future__ import annotations

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict

_FIELDS = "uuid name capability memory_total memory_used memory_free utilisation temperature power power_limit"


def empty_gpu(index: int) -> Dict[str, Any]:
    """Return a GPU record without any values. Unknown values are None, never 0."""
    gpu: Dict[str, Any] = {"index": index}
    gpu.update(dict.fromkeys(_FIELDS.split()), bus_id=None, memory_clock=None)
    gpu.update(mig=[], processes=None, error=None, error_code=None)
    return gpu
