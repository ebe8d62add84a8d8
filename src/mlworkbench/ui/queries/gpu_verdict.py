"""Whether a run used its GPUs, and the evidence. What a target tells is a stranger's: all of it is looked at twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model import Run
from ...remote.gpus.verdict import size, start_line
from ...report.failures import gpu_summary
from ...report.plain import plain
from ...report.records import gpu_words

_MOST = 64  # GPUs, processes, pieces of evidence
_EVIDENCE = {
    "driver": "NVIDIA driver",
    "cuda": "CUDA version (driver)",
    "visible": "CUDA_VISIBLE_DEVICES",
    "container": "Container",
    "container_gpus": "GPUs in the container",
    "frameworks": "Frameworks",
    "executors": "Executor GPUs",
    "signs": "Found in the log",
    "cpu_share": "CPU utilization",
    "cpu_cores": "CPU cores used",
    "busiest": "Busiest process",
    "disk_share": "Time waiting for disk I/O",
}
_SHARES = ("cpu_share", "busiest", "disk_share")


@dataclass(frozen=True)
class Card:
    """One GPU: its name, and figures by what they are of."""

    name: str
    figures: list[tuple[str, str]]
    processes: list[str]
    lost: str | None


@dataclass(frozen=True)
class Verdict:
    """All that is known of a run's GPUs. ``used``: yes, partly, no, unknown; "" while it runs."""

    used: str
    line: str
    warning: str | None
    cause: str | None
    remedy: str | None
    asked: str | None
    got: list[str]
    held: bool
    cards: list[Card]
    evidence: list[tuple[str, str]]

    @property
    def unasked(self) -> bool:
        """Nothing is wrong: nobody wanted one."""
        return self.used == "no" and not self.asked

    @property
    def doubtful(self) -> bool:
        """There is reason to look at the evidence."""
        return self.used in ("no", "partly", "unknown") and not self.unasked


def verdict(run: Run) -> Verdict | None:
    """None if the run had nothing to do with GPUs."""
    told = run.gpu
    if not isinstance(told, dict) or not told:
        return None
    words = gpu_words(told)
    got = _dict(told.get("got"))
    asked = told.get("asked") or run.spec.gpus or got.get("asked")
    return Verdict(
        used=_text(told.get("used"), 20),
        line=plain(gpu_summary(told) or words.get("gpu", ""), 1000),
        warning=_maybe(words.get("gpu_warning")),
        cause=_maybe(words.get("gpu_cause")),
        remedy=_maybe(words.get("gpu_remedy")),
        asked=_maybe(asked),
        got=[plain(start_line(one), 500) for one in _dicts(got.get("gpus"))],
        held=got.get("held") is True,
        cards=[_card(one) for one in _dicts(told.get("gpus"))],
        evidence=_evidence(_dict(told.get("evidence"))),
    )


def _card(gpu: Mapping[str, Any]) -> Card:
    index = gpu.get("index")
    name = f"GPU {index}: {_text(gpu.get('name'), 100) or 'unknown'}" if index is not None else "GPU"
    found = [
        ("Time busy", _share(gpu.get("busy_share"))),
        ("Mean utilization", _unit(gpu.get("mean_utilisation"), " %")),
        ("Time used by this run", _share(gpu.get("mine_share"))),
        ("Time used by other processes", _share(gpu.get("others_share"))),
        ("Peak memory of the run", _bytes(gpu.get("peak_memory"))),
        ("Peak memory of the GPU", _bytes(gpu.get("peak_memory_device"))),
        ("GPU memory", _bytes(gpu.get("memory_total"))),
        ("Energy", _unit(gpu.get("energy_wh"), " Wh", 2)),
        ("Mean power", _unit(gpu.get("mean_power"), " W")),
        ("Maximum power", _unit(gpu.get("max_power"), " W")),
        ("Maximum temperature", _unit(gpu.get("max_temperature"), " °C")),
        ("Time throttled", _share(gpu.get("throttled_share"))),
        ("Throttle reasons", ", ".join(plain(str(one), 60) for one in list(_dict(gpu.get("reasons")))[:8]) or None),
        (
            "Measured",
            _unit(gpu.get("seconds"), " s") and f"{_unit(gpu.get('seconds'), ' s')}, {gpu.get('samples')} samples",
        ),
        ("UUID", _maybe(gpu.get("uuid"))),
    ]
    lost = _dict(gpu.get("lost"))
    return Card(
        plain(name, 200),
        [(label, value) for label, value in found if value],
        _processes(_dict(gpu.get("pids"))),
        _maybe(lost.get("why")),
    )


def _processes(pids: Mapping[Any, Any]) -> list[str]:
    found = []
    for pid, told in list(pids.items())[:_MOST]:
        facts = _dict(told)
        words = [f"{_text(facts.get('name'), 80) or 'process'} (PID {_text(pid, 20)})", _bytes(facts.get("memory"))]
        found.append(", ".join(word for word in words if word))
    return found


def _evidence(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    for name, label in _EVIDENCE.items():
        value = told.get(name)
        text = _share(value) if name in _SHARES else _words(value)
        if text:
            found.append((label, text))
    return found


def _words(value: Any) -> str | None:
    if value is None or value is False or value == [] or value == {}:
        return None
    if isinstance(value, dict):
        return plain(", ".join(f"{name} {_inner(one)}" for name, one in list(value.items())[:_MOST]), 1000)
    if isinstance(value, list):
        return plain(", ".join(_inner(one) for one in value[:_MOST]), 1000)
    return "yes" if value is True else _inner(value)


def _inner(value: Any) -> str:
    if isinstance(value, dict):
        return plain(" ".join(f"{name}={one}" for name, one in list(value.items())[:12]), 300)
    return plain(f"{value:g}" if isinstance(value, float) else str(value), 300)


def _dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value[:_MOST] if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: Any, limit: int) -> str:
    return "" if value is None else plain(str(value), limit)


def _maybe(value: Any) -> str | None:
    return plain(str(value), 2000) if value else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _share(value: Any) -> str | None:
    known = _number(value)
    return None if known is None else f"{known * 100:.1f} %" if known < 0.1 else f"{known * 100:.0f} %"


def _unit(value: Any, unit: str, digits: int = 0) -> str | None:
    known = _number(value)
    return None if known is None else f"{known:.{digits}f}{unit}"


def _bytes(value: Any) -> str | None:
    known = _number(value)
    return None if known is None else size(known)
