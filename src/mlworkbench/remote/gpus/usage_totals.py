"""Aggregate the samples of a GPU during a run, without I/O."""

from __future__ import annotations

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

# Bits of NVML's clock event reasons. A power cap is normal at full load; the others are problems.
THROTTLE_REASONS = {0x04: "power cap", 0x08: "hardware slowdown", 0x20: "heat", 0x40: "heat", 0x80: "power brake"}
_SLOWDOWN = 0x08 | 0x20 | 0x40 | 0x80
MAX_PROCESSES = 32  # maximum number per GPU in the summary


class WeightedMean:
    """A time-weighted mean."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def add(self, value: Optional[float], weight: float) -> None:
        if value is not None:
            self._sum += value * weight
            self._weight += weight

    def value(self, digits: int = 4) -> Optional[float]:
        return round(self._sum / self._weight, digits) if self._weight else None


class GpuTotals:
    """Totals of one GPU. A metric that was never reported is None."""

    def __init__(self, uuid: str, index: Optional[int], name: Optional[str]) -> None:
        self.uuid, self.index, self.name = uuid, index, name
        self.samples = 0
        self.seconds = 0.0
        self.attributed = False  # at least one sample attributed processes to runs
        self.lost: Optional[Dict[str, Any]] = None
        self._utilization, self._busy, self._run_share, self._others_share = (
            WeightedMean(),
            WeightedMean(),
            WeightedMean(),
            WeightedMean(),
        )
        self._throttled, self._power = WeightedMean(), WeightedMean()
        self._histogram = [0.0] * 101
        self._reasons: Dict[str, float] = {}
        self._busy_seconds = 0.0
        self._peaks: Dict[str, Optional[float]] = dict.fromkeys(
            ("own", "device", "total", "others", "temperature", "power")
        )
        self.pids: Dict[int, Dict[str, Any]] = {}
        self.other_pids: Dict[int, Dict[str, Any]] = {}
        self._loads: Dict[int, WeightedMean] = {}
        self._energy: List[float] = []
        self._watt_seconds: Optional[float] = None
        self._traffic = {name: WeightedMean() for name in ("pcie_rx", "pcie_tx")}
        self._links: List[Any] = []

    def add(self, seconds: float, figures: Dict[str, Any], run_processes: "Optional[List[Dict[str, Any]]]") -> None:
        """Add a sample that represents ``seconds``.

        ``run_processes`` lists the run's processes on the GPU; None if unknown.
        """
        self.samples += 1
        self.seconds += seconds
        weight = max(seconds, 1e-3)  # so that a run with one sample also has a mean
        busy = figures["utilisation"]
        self._utilization.add(busy, weight)
        self._busy.add(None if busy is None else float(busy > 0), weight)
        if busy is not None:
            self._histogram[max(0, min(100, int(busy)))] += weight
        self._power.add(figures["power"], weight)
        if figures["power"] is not None:
            self._watt_seconds = (self._watt_seconds or 0.0) + figures["power"] * seconds
        self._update_peak("temperature", figures["temperature"])
        self._update_peak("power", figures["power"])
        self._update_peak("device", figures["memory"])
        self._update_peak("total", figures["memory_total"])
        self._add_reasons(figures["reasons"], weight if busy else 0.0)
        self._add_processes(weight, figures, run_processes)

    def _add_reasons(self, mask: Optional[int], weight: float) -> None:
        """Add throttle reasons for busy time only, because an idle card is slow for other reasons."""
        if mask is None or not weight:
            return
        self._throttled.add(float(bool(mask & _SLOWDOWN)), weight)
        self._busy_seconds += weight
        for name in {name for bit, name in THROTTLE_REASONS.items() if mask & bit}:
            self._reasons[name] = self._reasons.get(name, 0.0) + weight

    def _add_processes(
        self, weight: float, figures: Dict[str, Any], run_processes: "Optional[List[Dict[str, Any]]]"
    ) -> None:
        all_processes = figures["processes"]
        if run_processes is None:
            return
        self.attributed = True
        self._run_share.add(float(bool(run_processes)), weight)
        sizes = [process["memory"] for process in run_processes]
        if sizes and None not in sizes:
            self._update_peak("own", sum(sizes))
        _record_processes(self.pids, run_processes)
        if all_processes is None:
            return
        run_pids = {process["pid"] for process in run_processes}
        others = [process for process in all_processes if process["pid"] not in run_pids]
        self._others_share.add(float(bool(others)), weight)
        if others:
            self._update_peak("others", sum(process["memory"] or 0 for process in others))
        _record_processes(self.other_pids, others)

    def _update_peak(self, name: str, value: Optional[float]) -> None:
        current = self._peaks[name]
        if value is not None and (current is None or value > current):
            self._peaks[name] = value

    def add_energy(self, watt_hours: Optional[float]) -> None:
        if watt_hours is not None:
            self._energy.append(watt_hours)
            del self._energy[1:-1]

    def add_traffic(self, now: float, traffic: "Dict[str, Optional[float]]") -> None:
        for name, mean in self._traffic.items():
            mean.add(traffic[name], 1.0)
        if traffic["nvlink_rx"] is not None:
            self._links.append((now, traffic["nvlink_rx"], traffic["nvlink_tx"]))
            del self._links[1:-1]

    def add_loads(self, loads: "Optional[Dict[int, float]]") -> None:
        """Add the utilization by each process since the last call. A process that is not listed did nothing."""
        if loads is None:
            return
        for pid in self.pids:
            self._loads.setdefault(pid, WeightedMean()).add(loads.get(pid, 0.0), 1.0)

    def _describe_process(self, pid: int, facts: "Dict[str, Any]") -> "Dict[str, Any]":
        return dict(facts, load=self._loads[pid].value(2)) if pid in self._loads else facts

    def summary(self) -> Dict[str, Any]:
        return {
            "uuid": self.uuid,
            "index": self.index,
            "name": self.name,
            "samples": self.samples,
            "seconds": round(self.seconds, 3),
            "busy_share": self._busy.value(),
            "mean_utilisation": self._utilization.value(2),
            "quantiles": self._quantiles(),
            "mine_share": self._run_share.value(),
            "others_share": self._others_share.value(),
            "peak_memory": self._peaks["own"],
            "memory_total": self._peaks["total"],
            "peak_memory_device": self._peaks["device"],
            "peak_memory_others": self._peaks["others"],
            "max_temperature": self._peaks["temperature"],
            "mean_power": self._power.value(2),
            "max_power": self._peaks["power"],
            "energy_wh": self._watt_hours(),
            "throttled_share": self._throttled.value(),
            "reasons": {name: round(value / self._busy_seconds, 4) for name, value in self._reasons.items()},
            "pcie_rx": self._traffic["pcie_rx"].value(0),
            "pcie_tx": self._traffic["pcie_tx"].value(0),
            "nvlink_rx": self._link_rate(1),
            "nvlink_tx": self._link_rate(2),
            "pids": {str(pid): self._describe_process(pid, facts) for pid, facts in self.pids.items()},
            "others": {str(pid): facts for pid, facts in self.other_pids.items()},
            "lost": self.lost,
        }

    def _watt_hours(self) -> Optional[float]:
        """Return the energy from the card's meter, or from power samples.

        Power samples are used if the card has no meter or was reset.
        """
        if len(self._energy) == 2 and self._energy[1] >= self._energy[0] and self.lost is None:
            return round(self._energy[1] - self._energy[0], 5)
        return None if self._watt_seconds is None else round(self._watt_seconds / 3600, 5)

    def _quantiles(self) -> "Optional[List[int]]":
        """Return the utilization at the 10th, 50th, and 90th percentile of the time."""
        total = sum(self._histogram)
        if not total:
            return None
        quantiles = []
        for share in (0.1, 0.5, 0.9):
            cumulative = 0.0
            for value, weight in enumerate(self._histogram):
                cumulative += weight
                if cumulative >= share * total:
                    quantiles.append(value)
                    break
        return quantiles

    def _link_rate(self, column: int) -> Optional[float]:
        if len(self._links) < 2 or self._links[1][0] <= self._links[0][0]:
            return None
        first, last = self._links
        return round(float(max(0.0, last[column] - first[column]) / (last[0] - first[0])))


def _record_processes(records: "Dict[int, Dict[str, Any]]", processes: "List[Dict[str, Any]]") -> None:
    for process in processes:
        if process["pid"] not in records and len(records) >= MAX_PROCESSES:
            continue
        facts = records.setdefault(
            process["pid"], {"name": process.get("name"), "user": process.get("user"), "peak": None}
        )
        if process.get("rank") is not None:
            facts["rank"] = process["rank"]
        if process["memory"] is not None:
            facts["peak"] = max(facts["peak"] or 0, process["memory"])
