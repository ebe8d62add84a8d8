"""One card at one moment, for the sampler: through NVML, or slowly through nvidia-smi."""

from __future__ import annotations

from . import smi
from .nvml import Lost, NoNvml, Nvml

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Union

    from .nvml import Card

    Reading = Dict[str, Any]

_CORE = 0  # NVML's number of the thermometer
_TX, _RX = 0, 1
_ALL_LINKS = 0xFFFFFFFF


class NvmlSource:
    """Cards that are asked one question after the other."""

    pace = 0.0  # seconds that must be between two looks

    def __init__(self, uuids: "Optional[Sequence[str]]") -> None:
        self._nvml = Nvml()
        self._cards: Dict[str, Card] = {}
        self._way: Dict[str, int] = {}
        self.names: Dict[str, Any] = {}
        for card in self._nvml.cards():
            try:
                uuid = card.text("UUID")
                if uuid and (uuids is None or uuid in uuids):
                    self._cards[uuid] = card
                    self.names[uuid] = (card.index, card.text("Name"))
            except Lost:
                continue  # nothing was asked of it, or the sampler says that it is missing

    def read(self) -> "Dict[str, Union[Reading, str]]":
        """UUID → figures, or why there are none."""
        return {uuid: _safely(_quick, card) for uuid, card in self._cards.items()}

    def energy(self, uuid: str) -> Optional[float]:
        """Watt-hours since the driver was loaded. Takes milliseconds."""
        found = self._ask(uuid, "TotalEnergyConsumption")
        return None if found is None else found / 3.6e6

    def traffic(self, uuid: str) -> Dict[str, Optional[float]]:
        """Bytes per second over PCIe, this time one way, next time the other; bytes so far over NVLink.

        Takes a millisecond, and 20 more of waiting: the driver measures for so long.
        """
        self._way[uuid] = way = _RX if self._way.get(uuid) == _TX else _TX
        pace = self._ask(uuid, "PcieThroughput", way)
        links = self._links(uuid)
        found = {"pcie_tx": None, "pcie_rx": None, "nvlink_tx": links[0], "nvlink_rx": links[1]}
        found["pcie_rx" if way == _RX else "pcie_tx"] = None if pace is None else pace * 1000.0
        return found

    def _links(self, uuid: str) -> "List[Optional[float]]":
        binding = self._nvml.binding
        ids = [binding.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, binding.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX]
        found = self._ask(uuid, "FieldValues", [(one, _ALL_LINKS) for one in ids])
        if found is None:
            return [None, None]
        return [one.value.ullVal * 1024.0 if one.nvmlReturn == 0 else None for one in found]

    def _ask(self, uuid: str, name: str, *words: Any) -> Any:
        try:
            return self._cards[uuid].ask(name, *words) if uuid in self._cards else None
        except Lost:
            return None

    def close(self) -> None:
        self._nvml.close()


def _safely(question: Any, card: Card) -> "Union[Reading, str]":
    try:
        found: Reading = question(card)
    except Lost as lost:
        return str(lost)
    if all(value is None for value in found.values()):
        return "it no longer responds"
    return found


def _quick(card: Card) -> Reading:
    """What is cheap enough for every second."""
    memory = card.memory()
    rates = card.ask("UtilizationRates")
    power = card.ask("PowerUsage")
    reasons = card.ask("CurrentClocksEventReasons")
    if reasons is None:  # a driver before 535
        reasons = card.ask("CurrentClocksThrottleReasons")
    return {
        "utilisation": rates.gpu if rates else None,
        "memory": memory.used if memory else None,
        "memory_total": memory.total if memory else None,
        "power": None if power is None else power / 1000,
        "temperature": card.ask("Temperature", _CORE),
        "reasons": reasons,
        "processes": card.processes("Compute"),
    }


class SmiSource:
    """nvidia-smi, where this Python cannot load NVML. It takes some 0.1 s of a processor, so it is asked rarely."""

    pace = 60.0

    def __init__(self, uuids: "Optional[Sequence[str]]") -> None:
        self._uuids = uuids
        self.names: Dict[str, Any] = {}
        found = smi.look()
        if found is None or found["problem"]:
            raise NoNvml(0, found["problem"] if found else "nvidia-smi is not installed")
        for gpu in found["gpus"]:
            if gpu["uuid"] and (uuids is None or gpu["uuid"] in uuids):
                self.names[gpu["uuid"]] = (gpu["index"], gpu["name"])

    def read(self) -> "Dict[str, Union[Reading, str]]":
        found = smi.look() or {"problem": "nvidia-smi is no longer available", "gpus": []}
        if found["problem"]:
            return dict.fromkeys(self.names, str(found["problem"]))
        told: "Dict[str, Union[Reading, str]]" = dict.fromkeys(self.names, "it no longer responds")
        for gpu in found["gpus"]:
            if gpu["uuid"] in self.names:
                figures = {name: gpu[name] for name in ("utilisation", "power", "temperature")}
                compute = [one for one in gpu["processes"] or () if one["kind"] == "compute"]
                figures.update(memory=gpu["memory_used"], memory_total=gpu["memory_total"])
                told[gpu["uuid"]] = dict(figures, reasons=None, processes=compute)
        return told

    def energy(self, uuid: str) -> Optional[float]:
        return None

    def traffic(self, uuid: str) -> "Dict[str, Optional[float]]":
        return dict.fromkeys(("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx"))

    def close(self) -> None:
        """Nothing is held open."""


def open_source(uuids: "Optional[Sequence[str]]") -> "Union[NvmlSource, SmiSource]":
    """Raises NoNvml, with the sentence, if neither works."""
    try:
        return NvmlSource(uuids)
    except NoNvml as error:
        try:
            return SmiSource(uuids)
        except NoNvml:
            raise error from None
