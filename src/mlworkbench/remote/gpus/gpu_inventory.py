"""Which GPUs are here, as they are now: through NVML, else through nvidia-smi, else what shows without the driver."""

from __future__ import annotations

import os

from . import empty
from .nvml import MISMATCH, NO_DRIVER, NO_LIBRARY, Lost, NoNvml, Nvml

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from .nvml import Card

    Gpu = Dict[str, Any]

_VERSION = "/proc/driver/nvidia/version"
_KNOWN = "/proc/driver/nvidia/gpus"
_PCI = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
_MEMORY_CLOCK, _CORE = 2, 0  # NVML's numbers of the kinds


def look(nvml: "Optional[Nvml]" = None) -> Dict[str, Any]:
    """All GPUs; ``problem`` is why they cannot be asked, or None. Nothing raises, whatever the machine is like.

    Whoever looks often keeps a session and gives it.
    """
    try:
        session = nvml or Nvml()
    except NoNvml as error:
        return _without(error)
    try:
        cards = session.cards()
        return {
            "driver": session.driver(),
            "cuda": session.cuda(),
            "source": "nvml",
            "problem": None,
            "gpus": [_gpu(card) for card in cards],
        }
    except NoNvml as error:
        return _without(error)
    finally:
        if nvml is None:
            session.close()


def _without(error: NoNvml) -> Dict[str, Any]:
    """NVML does not work. nvidia-smi may bring its own, or at least the machine shows that there should be a driver."""
    from . import smi  # noqa: PLC0415 - rarely needed

    told = smi.look() if error.code not in (MISMATCH, NO_DRIVER) else None
    if told is not None and told["problem"] is None:
        return told
    problem: Optional[str] = str(error)
    cards = pci_cards()
    loaded = loaded_driver(_read(_VERSION))
    if error.code == NO_LIBRARY and not loaded:
        # Nothing of NVIDIA's: a problem only if there is a card, or a tool that expects one.
        problem = (
            told["problem"] if told else "an NVIDIA card is installed, but there is no driver for it" if cards else None
        )
    elif error.code == MISMATCH and loaded:
        problem = "%s; loaded: %s" % (error, loaded)
    return {"driver": loaded, "cuda": None, "source": None, "problem": problem, "gpus": []}


def _gpu(card: Card) -> Gpu:
    gpu = empty(card.index)
    if card.trouble:
        gpu["error"] = card.trouble
        _recall(gpu, card.index)
        return gpu
    try:
        _identify(card, gpu)
        _measure(card, gpu)
    except Lost as lost:
        gpu["error"] = str(lost)
        _recall(gpu, card.index)
    return gpu


def _identify(card: Card, gpu: Gpu) -> None:
    capability = card.ask("CudaComputeCapability")
    bus = card.ask("PciInfo")
    gpu.update(
        uuid=card.text("UUID"),
        name=card.text("Name"),
        capability="%d.%d" % tuple(capability) if capability else None,
        bus_id=_decode(bus.busId) if bus else None,
        memory_clock=card.ask("MaxClockInfo", _MEMORY_CLOCK),
        power_limit=_thousandth(card.ask("EnforcedPowerLimit")),
        mig=[_slice(one) for one in card.slices()],
    )


def _measure(card: Card, gpu: Gpu) -> None:
    memory = card.memory()
    rates = card.ask("UtilizationRates")
    gpu.update(
        memory_total=memory.total if memory else None,
        memory_used=memory.used if memory else None,
        memory_free=memory.free if memory else None,
        utilisation=rates.gpu if rates else None,
        temperature=card.ask("Temperature", _CORE),
        power=_thousandth(card.ask("PowerUsage")),
        processes=processes_of(card),
    )


def processes_of(card: Card) -> Optional[List[Dict[str, Any]]]:
    """Each process once; one that computes and draws counts as computing. None if the card does not tell."""
    compute, graphics = card.processes("Compute"), card.processes("Graphics")
    if compute is None and graphics is None:
        return None
    known = {one["pid"] for one in compute or ()}
    return (compute or []) + [one for one in graphics or () if one["pid"] not in known]


def _slice(card: Card) -> Dict[str, Any]:
    memory = card.memory()
    return {
        "uuid": card.text("UUID"),
        "name": card.text("Name"),
        "memory_total": memory.total if memory else None,
        "memory_used": memory.used if memory else None,
    }


# -- what shows without NVML -------------------------------------------------------------------------


def loaded_driver(text: str) -> Optional[str]:
    """``NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat …`` → ``535.104.05``."""
    for word in text.split():
        parts = word.split(".")
        if len(parts) >= 2 and all(part.isdigit() for part in parts):
            return word
    return None


def pci_cards() -> List[str]:
    """Bus ids of NVIDIA's graphics and compute cards."""
    found = []
    try:
        names = sorted(os.listdir(_PCI))
    except OSError:
        return []  # no PCI here, or a container that does not show it
    for name in names:
        place = "%s/%s/" % (_PCI, name)
        if _read(place + "vendor").strip() == _NVIDIA and _read(place + "class").startswith("0x03"):
            found.append(name)
    return found


def _recall(gpu: Gpu, index: int) -> None:
    """Name and UUID of a card that does not answer, as the driver knew it at its start."""
    try:
        names = sorted(os.listdir(_KNOWN))
        text = _read("%s/%s/information" % (_KNOWN, names[index]))
    except (OSError, IndexError):
        return
    facts = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in text.splitlines()}
    uuid = facts.get("GPU UUID", "")
    gpu["name"] = gpu["name"] or facts.get("Model")
    gpu["uuid"] = gpu["uuid"] or (uuid if uuid.startswith("GPU-") and "?" not in uuid else None)
    gpu["bus_id"] = gpu["bus_id"] or facts.get("Bus Location")


def _thousandth(value: Optional[int]) -> Optional[float]:
    return None if value is None else value / 1000


def _decode(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
