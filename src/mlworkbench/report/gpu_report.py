"""The GPUs of a machine as people read of them."""

from __future__ import annotations

from ..hosts.gpus import Gpu, Gpus, Holder, Process

_GIB = 1 << 30


def summary(found: Gpus) -> str:
    told = [f"NVIDIA driver {found.driver}" if found.driver else None, f"CUDA {found.cuda}" if found.cuda else None]
    told += ["reported by nvidia-smi because NVML could not be loaded"] if found.source == "nvidia-smi" else []
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
        return f"not responding: {gpu.error}"
    words = [_process(one) for one in gpu.processes or () if one.kind != "graphics"]
    drawing = sum(one.kind == "graphics" for one in gpu.processes or ())
    if drawing:
        words.append(f"{drawing} graphics")
    if gpu.held and gpu.held.run not in {one.run for one in gpu.processes or ()}:
        words.insert(0, _held(gpu.held))
    return "; ".join(words) or None


def _held(holder: Holder) -> str:
    if holder.run:
        return f"held by run {holder.run}" + (f" of {holder.user}" if holder.user else "")
    pid = f" (pid {holder.pid})" if holder.pid else ""
    return f"held by {f'user {holder.user}' if holder.user else 'a process'}{pid} (not an mlw run)"


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
        facts["used_by"] or "not in use",
    ]
    return ", ".join(str(one) for one in words if one)
