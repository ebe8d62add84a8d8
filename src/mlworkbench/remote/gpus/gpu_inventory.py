"""Query the GPUs of this machine with NVML, nvidia-smi, or the PCI bus and /proc, in this order."""

from __future__ import annotations

import os

from ..shared import gpu_problems
from . import empty_gpu
from .nvml import MISMATCH, NO_DRIVER, NO_LIBRARY, GpuLost, Nvml, NvmlUnavailable

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from .nvml import Card

    Gpu = Dict[str, Any]

_VERSION = "/proc/driver/nvidia/version"
_DRIVER_GPUS = "/proc/driver/nvidia/gpus"
_PCI = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
_MEMORY_CLOCK, _GPU_SENSOR = 2, 0  # NVML constants


def query_gpus(nvml: "Optional[Nvml]" = None) -> Dict[str, Any]:
    """Return all GPUs. ``problem`` explains why they cannot be queried, or is None. Never raises.

    Callers that query often can pass a session, because opening one is slow.
    """
    try:
        session = nvml or Nvml()
    except NvmlUnavailable as error:
        return _fallback_inventory(error)
    try:
        cards = session.cards()
        return {
            "driver": session.driver_version(),
            "cuda": session.cuda_version(),
            "source": "nvml",
            "problem": None,
            "problem_code": None,
            "gpus": [_describe_card(card) for card in cards],
        }
    except NvmlUnavailable as error:
        return _fallback_inventory(error)
    finally:
        if nvml is None:
            session.close()


def _fallback_inventory(error: NvmlUnavailable) -> Dict[str, Any]:
    """Return the inventory without NVML.

    It comes from nvidia-smi, which may find its own library, or else from the driver's state.
    """
    from . import nvidia_smi  # noqa: PLC0415 - rarely needed

    smi_inventory = nvidia_smi.query_gpus() if error.code not in (MISMATCH, NO_DRIVER) else None
    if smi_inventory is not None and smi_inventory["problem"] is None:
        return smi_inventory
    problem: Optional[str] = str(error)
    code: Optional[str] = error.problem
    cards = find_pci_cards()
    loaded = parse_driver_version(_read_text(_VERSION))
    if error.code == NO_LIBRARY and not loaded:
        # No NVIDIA software: this is a problem only if there is a card, or a tool that expects one.
        problem, code = None, None
        if smi_inventory:
            problem, code = smi_inventory["problem"], smi_inventory["problem_code"]
        elif cards:
            problem, code = "an NVIDIA card is installed, but there is no driver for it", gpu_problems.NO_DRIVER
    elif error.code == MISMATCH and loaded:
        problem = "%s; loaded: %s" % (error, loaded)
    return {"driver": loaded, "cuda": None, "source": None, "problem": problem, "problem_code": code, "gpus": []}


def _describe_card(card: Card) -> Gpu:
    gpu = empty_gpu(card.index)
    if card.error:
        gpu.update(error=card.error, error_code=card.problem)
        _fill_from_proc(gpu, card.index)
        return gpu
    try:
        _read_identity(card, gpu)
        _read_measurements(card, gpu)
    except GpuLost as lost:
        gpu.update(error=str(lost), error_code=lost.problem)
        _fill_from_proc(gpu, card.index)
    return gpu


def _read_identity(card: Card, gpu: Gpu) -> None:
    capability = card.query("CudaComputeCapability")
    bus = card.query("PciInfo")
    gpu.update(
        uuid=card.text("UUID"),
        name=card.text("Name"),
        capability="%d.%d" % tuple(capability) if capability else None,
        bus_id=_decode(bus.busId) if bus else None,
        memory_clock=card.query("MaxClockInfo", _MEMORY_CLOCK),
        power_limit=_watts(card.query("EnforcedPowerLimit")),
        mig=[_describe_mig_device(device) for device in card.mig_devices()],
    )


def _read_measurements(card: Card, gpu: Gpu) -> None:
    memory = card.memory()
    rates = card.query("UtilizationRates")
    gpu.update(
        memory_total=memory.total if memory else None,
        memory_used=memory.used if memory else None,
        memory_free=memory.free if memory else None,
        utilisation=rates.gpu if rates else None,
        temperature=card.query("Temperature", _GPU_SENSOR),
        power=_watts(card.query("PowerUsage")),
        processes=list_processes(card),
    )


def list_processes(card: Card) -> Optional[List[Dict[str, Any]]]:
    """Return each process once, or None if the card does not report them.

    A process that uses the GPU for compute and for graphics counts as compute.
    """
    compute, graphics = card.processes("Compute"), card.processes("Graphics")
    if compute is None and graphics is None:
        return None
    compute_pids = {process["pid"] for process in compute or ()}
    return (compute or []) + [process for process in graphics or () if process["pid"] not in compute_pids]


def _describe_mig_device(card: Card) -> Dict[str, Any]:
    memory = card.memory()
    return {
        "uuid": card.text("UUID"),
        "name": card.text("Name"),
        "memory_total": memory.total if memory else None,
        "memory_used": memory.used if memory else None,
    }


# -- information without NVML ------------------------------------------------------------------------------


def parse_driver_version(text: str) -> Optional[str]:
    """Parse ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat …`` to ``535.104.05``."""
    for word in text.split():
        parts = word.split(".")
        if len(parts) >= 2 and all(part.isdigit() for part in parts):
            return word
    return None


def find_pci_cards() -> List[str]:
    """Return the bus IDs of NVIDIA's graphics and compute cards."""
    cards = []
    try:
        names = sorted(os.listdir(_PCI))
    except OSError:
        return []  # no PCI bus, or a container that hides it
    for name in names:
        folder = "%s/%s/" % (_PCI, name)
        if _read_text(folder + "vendor").strip() == _NVIDIA and _read_text(folder + "class").startswith("0x03"):
            cards.append(name)
    return cards


def _fill_from_proc(gpu: Gpu, index: int) -> None:
    """Add an unresponsive card's name and UUID, which the driver recorded when it was loaded."""
    try:
        names = sorted(os.listdir(_DRIVER_GPUS))
        text = _read_text("%s/%s/information" % (_DRIVER_GPUS, names[index]))
    except (OSError, IndexError):
        return
    facts = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in text.splitlines()}
    uuid = facts.get("GPU UUID", "")
    gpu["name"] = gpu["name"] or facts.get("Model")
    gpu["uuid"] = gpu["uuid"] or (uuid if uuid.startswith("GPU-") and "?" not in uuid else None)
    gpu["bus_id"] = gpu["bus_id"] or facts.get("Bus Location")


def _watts(milliwatts: Optional[int]) -> Optional[float]:
    return None if milliwatts is None else milliwatts / 1000


def _decode(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
