"""Text and table rows about the GPUs of a machine."""

from __future__ import annotations

from ..hosts.gpu_values import Gpu, Gpus, Holder, Process

_GIB = 1 << 30


def summary(gpus: Gpus) -> str:
    parts = [f"NVIDIA driver {gpus.driver}" if gpus.driver else None, f"CUDA {gpus.cuda}" if gpus.cuda else None]
    parts += ["reported by nvidia-smi because NVML could not be loaded"] if gpus.source == "nvidia-smi" else []
    return ", ".join(part for part in parts if part)


def row(gpu: Gpu) -> dict[str, object]:
    """Return the table row for a GPU."""
    return {
        "gpu": gpu.index,
        "name": gpu.name,
        "compute": gpu.capability,
        "memory": gib(gpu.memory_total),
        "free": gib(gpu.memory_free),
        "load": _unit(gpu.utilisation, " %"),
        "temperature": _unit(gpu.temperature, " °C"),
        "power": _power(gpu),
        "slices": ", ".join(mig_slice.name or mig_slice.uuid or "?" for mig_slice in gpu.mig) or None,
        "used_by": used_by(gpu),
        "uuid": gpu.uuid,
    }


def gib(count: int | None) -> str | None:
    """Return a size such as ``139.8 GiB``, in the unit that GPU vendors use."""
    return None if count is None else f"{count / _GIB:.1f} GiB"


def used_by(gpu: Gpu) -> str | None:
    """Return what uses the GPU, or why it is unusable; None if the driver reports no use."""
    if gpu.error:
        return f"not responding: {gpu.error}"
    parts = [_process(process) for process in gpu.processes or () if process.kind != "graphics"]
    graphics = sum(process.kind == "graphics" for process in gpu.processes or ())
    if graphics:
        parts.append(f"{graphics} graphics")
    if gpu.held and gpu.held.run not in {process.run for process in gpu.processes or ()}:
        parts.insert(0, _held(gpu.held))
    return "; ".join(parts) or None


def _held(holder: Holder) -> str:
    if holder.run:
        return f"held by run {holder.run}" + (f" of {holder.user}" if holder.user else "")
    pid = f" (pid {holder.pid})" if holder.pid else ""
    return f"held by {f'user {holder.user}' if holder.user else 'a process'}{pid} (not an mlw run)"


def _process(process: Process) -> str:
    size = f", {gib(process.memory)}" if process.memory is not None else ""
    if process.run:
        return f"run {process.run} ({process.name or process.pid}{size})"
    return f"{process.user or 'unknown user'} ({process.name or 'pid'} {process.pid}{size})"


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
    parts = [
        *kinds,
        facts["temperature"],
        facts["power"],
        facts["slices"],
        gpu.uuid,
        facts["used_by"] or "not in use",
    ]
    return ", ".join(str(part) for part in parts if part)
