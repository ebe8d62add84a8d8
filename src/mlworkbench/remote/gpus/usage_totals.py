"""What a GPU did while a run lasted, counted sample by sample. Pure: asks nobody anything."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

# Bits of NVML's clock reasons. A power cap is what a card at full work meets; the others are trouble.
REASONS = {0x04: "power cap", 0x08: "hardware slowdown", 0x20: "heat", 0x40: "heat", 0x80: "power brake"}
_TROUBLE = 0x08 | 0x20 | 0x40 | 0x80
_MOST = 32  # processes that are named


class Mean:
    """Of figures that hold for a while each."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def add(self, value: Optional[float], weight: float) -> None:
        if value is not None:
            self._sum += value * weight
            self._weight += weight

    def value(self, digits: int = 4) -> Optional[float]:
        return round(self._sum / self._weight, digits) if self._weight else None


class Tally:
    """One GPU. A figure that was never told stays None."""

    def __init__(self, uuid: str, index: Optional[int], name: Optional[str]) -> None:
        self.uuid, self.index, self.name = uuid, index, name
        self.samples = 0
        self.seconds = 0.0
        self.attributed = False  # it was known once whose processes are on it
        self.lost: Optional[Dict[str, Any]] = None
        self._utilisation, self._busy, self._mine, self._others = Mean(), Mean(), Mean(), Mean()
        self._throttled, self._power = Mean(), Mean()
        self._histogram = [0.0] * 101
        self._reasons: Dict[str, float] = {}
        self._busy_seconds = 0.0
        self._peaks: Dict[str, Optional[float]] = dict.fromkeys(
            ("own", "device", "total", "others", "temperature", "power")
        )
        self.pids: Dict[int, Dict[str, Any]] = {}
        self.other_pids: Dict[int, Dict[str, Any]] = {}
        self._energy: List[float] = []
        self._watt_seconds: Optional[float] = None
        self._traffic = {name: Mean() for name in ("pcie_rx", "pcie_tx")}
        self._links: List[Any] = []

    def add(self, seconds: float, figures: Dict[str, Any], own: "Optional[List[Dict[str, Any]]]") -> None:
        """A sample that stands for so many seconds. ``own``: processes of the run on it; None if nobody knows."""
        self.samples += 1
        self.seconds += seconds
        weight = max(seconds, 1e-3)  # a run of one sample has a mean, too
        busy = figures["utilisation"]
        self._utilisation.add(busy, weight)
        self._busy.add(None if busy is None else float(busy > 0), weight)
        if busy is not None:
            self._histogram[max(0, min(100, int(busy)))] += weight
        self._power.add(figures["power"], weight)
        if figures["power"] is not None:
            self._watt_seconds = (self._watt_seconds or 0.0) + figures["power"] * seconds
        self._peak("temperature", figures["temperature"])
        self._peak("power", figures["power"])
        self._peak("device", figures["memory"])
        self._peak("total", figures["memory_total"])
        self._add_reasons(figures["reasons"], weight if busy else 0.0)
        self._add_processes(weight, figures, own)

    def _add_reasons(self, mask: Optional[int], weight: float) -> None:
        """Of the time that the GPU was at work: an idle card is slow for other reasons."""
        if mask is None or not weight:
            return
        self._throttled.add(float(bool(mask & _TROUBLE)), weight)
        self._busy_seconds += weight
        for name in {name for bit, name in REASONS.items() if mask & bit}:
            self._reasons[name] = self._reasons.get(name, 0.0) + weight

    def _add_processes(self, weight: float, figures: Dict[str, Any], own: "Optional[List[Dict[str, Any]]]") -> None:
        every = figures["processes"]
        if own is None:
            return
        self.attributed = True
        self._mine.add(float(bool(own)), weight)
        sizes = [one["memory"] for one in own]
        if sizes and None not in sizes:
            self._peak("own", sum(sizes))
        _note(self.pids, own)
        if every is None:
            return
        known = {one["pid"] for one in own}
        others = [one for one in every if one["pid"] not in known]
        self._others.add(float(bool(others)), weight)
        if others:
            self._peak("others", sum(one["memory"] or 0 for one in others))
        _note(self.other_pids, others)

    def _peak(self, name: str, value: Optional[float]) -> None:
        known = self._peaks[name]
        if value is not None and (known is None or value > known):
            self._peaks[name] = value

    def add_energy(self, watt_hours: Optional[float]) -> None:
        if watt_hours is not None:
            self._energy.append(watt_hours)
            del self._energy[1:-1]

    def add_traffic(self, now: float, found: "Dict[str, Optional[float]]") -> None:
        for name, mean in self._traffic.items():
            mean.add(found[name], 1.0)
        if found["nvlink_rx"] is not None:
            self._links.append((now, found["nvlink_rx"], found["nvlink_tx"]))
            del self._links[1:-1]

    def summary(self) -> Dict[str, Any]:
        return {
            "uuid": self.uuid,
            "index": self.index,
            "name": self.name,
            "samples": self.samples,
            "seconds": round(self.seconds, 3),
            "busy_share": self._busy.value(),
            "mean_utilisation": self._utilisation.value(2),
            "quantiles": self._quantiles(),
            "mine_share": self._mine.value(),
            "others_share": self._others.value(),
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
            "nvlink_rx": self._rate(1),
            "nvlink_tx": self._rate(2),
            "pids": {str(pid): facts for pid, facts in self.pids.items()},
            "others": {str(pid): facts for pid, facts in self.other_pids.items()},
            "lost": self.lost,
        }

    def _watt_hours(self) -> Optional[float]:
        """By the card's own meter; by the power that was seen where it has none, or was reset."""
        if len(self._energy) == 2 and self._energy[1] >= self._energy[0] and self.lost is None:
            return round(self._energy[1] - self._energy[0], 5)
        return None if self._watt_seconds is None else round(self._watt_seconds / 3600, 5)

    def _quantiles(self) -> "Optional[List[int]]":
        """Utilisation that a tenth, half, nine tenths of the time stayed at or below."""
        whole = sum(self._histogram)
        if not whole:
            return None
        found = []
        for share in (0.1, 0.5, 0.9):
            sum_ = 0.0
            for value, weight in enumerate(self._histogram):
                sum_ += weight
                if sum_ >= share * whole:
                    found.append(value)
                    break
        return found

    def _rate(self, which: int) -> Optional[float]:
        if len(self._links) < 2 or self._links[1][0] <= self._links[0][0]:
            return None
        first, last = self._links
        return round(float(max(0.0, last[which] - first[which]) / (last[0] - first[0])))


def _note(known: "Dict[int, Dict[str, Any]]", seen: "List[Dict[str, Any]]") -> None:
    for one in seen:
        if one["pid"] not in known and len(known) >= _MOST:
            continue
        facts = known.setdefault(one["pid"], {"name": one.get("name"), "user": one.get("user"), "peak": None})
        if one["memory"] is not None:
            facts["peak"] = max(facts["peak"] or 0, one["memory"])
