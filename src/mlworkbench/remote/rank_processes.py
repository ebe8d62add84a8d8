"""Start a run in several processes, with a launcher such as torchrun."""

from __future__ import annotations

from .allocation import current
from .gpus.presence import may_have_gpu
from .shared.atomic_files import read_json
from .shared.process_launchers import LAUNCHERS, MAX_PROCESSES, PER_GPU, launch_command, launch_variables

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Optional

    from .run_spec import Spec
    from .shared.failure import Reason
    from .shared.layout import RunFolder


def apply_launcher(run: RunFolder, spec: Spec) -> Optional[Reason]:
    """Replace the command in the in-memory spec by the one that starts all processes. Return a problem, if any."""
    processes = spec.get("processes")
    if not processes:
        return None
    if processes["launcher"] not in LAUNCHERS:
        return "unknown launcher %a" % str(processes["launcher"])[:80]
    count = processes["count"]
    if count == PER_GPU:
        count = len((read_json(run.lease) or {}).get("uuids") or ()) or current().gpus
    if not 0 < int(count) <= MAX_PROCESSES:
        return "cannot start one process per GPU: the run has no GPUs"
    spec["environment"] = dict(launch_variables(processes["launcher"], _has_gpus(spec)), **spec["environment"])
    command = spec["commands"][-1]
    argv = launch_command(processes, int(count), bool(spec.get("container")), command["argv"])
    spec["commands"] = [*spec["commands"][:-1], {"step": command["step"], "argv": argv}]
    return None


def _has_gpus(spec: Spec) -> bool:
    container = spec.get("container")
    if container:
        return bool(container.get("gpus"))
    return spec["environment"].get("CUDA_VISIBLE_DEVICES") not in ("", "-1") and may_have_gpu()
