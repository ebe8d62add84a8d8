"""Read the current metrics of GPUs for the sampler with NVML or, more slowly, with nvidia-smi."""

from __future__ import annotations

from . import nvidia_smi
from .nvml import GpuLost, Nvml, NvmlUnavailable

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Union

    from .nvml import Card

    Reading = Dict[str, Any]

_GPU_SENSOR = 0  # NVML ID of the temperature sensor
_TX, _RX = 0, 1
_ALL_LINKS = 0xFFFFFFFF


class NvmlSource:
    """A source of metrics that uses NVML."""

    min_interval = 0.0  # minimum seconds between two samples

    def __init__(self, uuids: "Optional[Sequence[str]]") -> None:
        self._nvml = Nvml()
        self._cards: Dict[str, Card] = {}
        self._direction: Dict[str, int] = {}
        self._load_times: Dict[str, int] = {}  # time of the newest record of a process's utilization
        self.names: Dict[str, Any] = {}
        for card in self._nvml.cards():
            try:
                uuid = card.text("UUID")
                if uuid and (uuids is None or uuid in uuids):
                    self._cards[uuid] = card
                    self.names[uuid] = (card.index, card.text("Name"))
            except GpuLost:
                continue  # if this GPU was requested, the sampler reports it as missing

    def read(self) -> "Dict[str, Union[Reading, str]]":
        """Return the metrics for each UUID, or the reason why there are none."""
        return {uuid: _read_card(_read_metrics, card) for uuid, card in self._cards.items()}

    def energy(self, uuid: str) -> Optional[float]:
        """Return the watt-hours since the driver was loaded. The call takes milliseconds."""
        millijoules = self._query(uuid, "TotalEnergyConsumption")
        return None if millijoules is None else millijoules / 3.6e6

    def traffic(self, uuid: str) -> Dict[str, Optional[float]]:
        """Return bytes per second over PCIe, and total bytes over NVLink.

        The PCIe direction alternates between calls. A call takes about 1 ms of CPU time, and waits 20 ms
        while the driver measures.
        """
        self._direction[uuid] = direction = _RX if self._direction.get(uuid) == _TX else _TX
        rate = self._query(uuid, "PcieThroughput", direction)
        links = self._links(uuid)
        traffic = {"pcie_tx": None, "pcie_rx": None, "nvlink_tx": links[0], "nvlink_rx": links[1]}
        traffic["pcie_rx" if direction == _RX else "pcie_tx"] = None if rate is None else rate * 1000.0
        return traffic

    def process_loads(self, uuid: str) -> "Optional[Dict[int, float]]":
        """Return the utilization in percent by each process since the last call, or None if it is not reported."""
        records = self._query(uuid, "ProcessUtilization", self._load_times.get(uuid, 0))
        if not records:
            return None
        self._load_times[uuid] = max(record.timeStamp for record in records)
        loads: Dict[int, List[int]] = {}
        for record in records:
            if record.smUtil <= 100:  # drivers also return invalid records
                loads.setdefault(record.pid, []).append(record.smUtil)
        return {pid: sum(values) / len(values) for pid, values in loads.items()}

    def _links(self, uuid: str) -> "List[Optional[float]]":
        binding = self._nvml.binding
        fields = [binding.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, binding.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX]
        values = self._query(uuid, "FieldValues", [(field, _ALL_LINKS) for field in fields])
        if values is None:
            return [None, None]
        return [value.value.ullVal * 1024.0 if value.nvmlReturn == 0 else None for value in values]

    def _query(self, uuid: str, name: str, *arguments: Any) -> Any:
        try:
            return self._cards[uuid].query(name, *arguments) if uuid in self._cards else None
        except GpuLost:
            return None

    def close(self) -> None:
        self._nvml.close()


def _read_card(read: Any, card: Card) -> "Union[Reading, str]":
    try:
        reading: Reading = read(card)
    except GpuLost as error:
        return str(error)
    if all(value is None for value in reading.values()):
        return "it no longer responds"
    return reading


def _read_metrics(card: Card) -> Reading:
    """Read the metrics that are cheap enough for every sample."""
    memory = card.memory()
    rates = card.query("UtilizationRates")
    power = card.query("PowerUsage")
    reasons = card.query("CurrentClocksEventReasons")
    if reasons is None:  # driver older than 535
        reasons = card.query("CurrentClocksThrottleReasons")
    return {
        "utilisation": rates.gpu if rates else None,
        "memory": memory.used if memory else None,
        "memory_total": memory.total if memory else None,
        "power": None if power is None else power / 1000,
        "temperature": card.query("Temperature", _GPU_SENSOR),
        "reasons": reasons,
        "processes": card.processes("Compute"),
    }


class SmiSource:
    """A source of metrics that uses nvidia-smi, for a Python that cannot load NVML.

    Each call takes about 0.1 s of CPU time, so samples are rare.
    """

    min_interval = 60.0

    def __init__(self, uuids: "Optional[Sequence[str]]") -> None:
        self._uuids = uuids
        self.names: Dict[str, Any] = {}
        inventory = nvidia_smi.query_gpus()
        if inventory is None or inventory["problem"]:
            raise NvmlUnavailable(0, inventory["problem"] if inventory else "nvidia-smi is not installed")
        for gpu in inventory["gpus"]:
            if gpu["uuid"] and (uuids is None or gpu["uuid"] in uuids):
                self.names[gpu["uuid"]] = (gpu["index"], gpu["name"])

    def read(self) -> "Dict[str, Union[Reading, str]]":
        inventory = nvidia_smi.query_gpus() or {"problem": "nvidia-smi is no longer available", "gpus": []}
        if inventory["problem"]:
            return dict.fromkeys(self.names, str(inventory["problem"]))
        readings: "Dict[str, Union[Reading, str]]" = dict.fromkeys(self.names, "it no longer responds")
        for gpu in inventory["gpus"]:
            if gpu["uuid"] in self.names:
                figures = {name: gpu[name] for name in ("utilisation", "power", "temperature")}
                compute = [process for process in gpu["processes"] or () if process["kind"] == "compute"]
                figures.update(memory=gpu["memory_used"], memory_total=gpu["memory_total"])
                readings[gpu["uuid"]] = dict(figures, reasons=None, processes=compute)
        return readings

    def energy(self, uuid: str) -> Optional[float]:
        return None

    def traffic(self, uuid: str) -> "Dict[str, Optional[float]]":
        return dict.fromkeys(("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx"))

    def process_loads(self, uuid: str) -> "Optional[Dict[int, float]]":
        return None

    def close(self) -> None:
        """Do nothing: no resources are held."""


def open_source(uuids: "Optional[Sequence[str]]") -> "Union[NvmlSource, SmiSource]":
    """Open NVML or, if that fails, nvidia-smi. Raise NVML's NvmlUnavailable if neither works."""
    try:
        return NvmlSource(uuids)
    except NvmlUnavailable as error:
        try:
            return SmiSource(uuids)
        except NvmlUnavailable:
            raise error from None
