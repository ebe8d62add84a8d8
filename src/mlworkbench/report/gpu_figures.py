"""Figures of each GPU of a run, for runs with several GPUs."""

from __future__ import annotations

from typing import Any

from ..model import Run
from ..remote.shared.process_launchers import format_ranks
from ..sanitize import plain

_MAX_GPUS = 64


def gpu_lines(run: Run) -> list[tuple[str, str]]:
    """Return a label and a line for each GPU, such as ``GPU 1`` and ``91 % of the time, peak 71 GiB, rank 1``."""
    gpus = (run.gpu or {}).get("gpus")
    records = [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    if len(records) < 2:
        return []
    return [(plain(f"GPU {gpu.get('index')}", 20), _describe(gpu)) for gpu in records[:_MAX_GPUS]]


def _describe(gpu: dict[str, Any]) -> str:
    share, peak, energy = (_number(gpu.get(name)) for name in ("mean_utilisation", "peak_memory", "energy_wh"))
    pids = gpu.get("pids")
    processes = [item for item in pids.values() if isinstance(item, dict)] if isinstance(pids, dict) else []
    ranks = {item["rank"] for item in processes if type(item.get("rank")) is int}
    parts = [
        "not used" if not processes and not peak else None,
        f"{share:.0f} % of the time" if share is not None else None,
        f"peak {peak / 2**30:.3g} GiB" if peak else None,
        f"{energy:.2f} Wh" if energy is not None else None,
        format_ranks(sorted(ranks)) if ranks else None,
    ]
    return ", ".join(part for part in parts if part)


def _number(value: Any) -> float | None:
    return (
        float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18 else None
    )
