"""GPU verdict of a run and its evidence. Data from targets is untrusted, so every value is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model import Run
from ...remote.gpus.verdict import format_size, start_line
from ...report.failure_report import gpu_summary
from ...report.run_records import gpu_fields
from ...sanitize import plain

_MAX_ITEMS = 64  # maximum GPUs, processes, or pieces of evidence
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
    """GPU with its name and labeled values."""

    name: str
    figures: list[tuple[str, str]]
    processes: list[str]
    lost: str | None


@dataclass(frozen=True)
class Verdict:
    """GPU usage of a run.

    ``used`` is ``yes``, ``partly``, ``no``, or ``unknown``, and "" while the run is active.
    """

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
    def not_requested(self) -> bool:
        """Whether the run neither requested nor used a GPU, which is not a problem."""
        return self.used == "no" and not self.asked

    @property
    def needs_attention(self) -> bool:
        """Whether the user should check the evidence."""
        return self.used in ("no", "partly", "unknown") and not self.not_requested


def verdict(run: Run) -> Verdict | None:
    """Return the verdict, or None if the run has no GPU data."""
    record = run.gpu
    if not isinstance(record, dict) or not record:
        return None
    texts = gpu_fields(record)
    got = _dict(record.get("got"))
    asked = record.get("asked") or run.spec.gpus or got.get("asked")
    return Verdict(
        used=_text(record.get("used"), 20),
        line=plain(gpu_summary(record) or texts.get("gpu", ""), 1000),
        warning=_optional_text(texts.get("gpu_warning")),
        cause=_optional_text(texts.get("gpu_cause")),
        remedy=_optional_text(texts.get("gpu_remedy")),
        asked=_optional_text(asked),
        got=[plain(start_line(gpu), 500) for gpu in _dicts(got.get("gpus"))],
        held=got.get("held") is True,
        cards=[_card(gpu) for gpu in _dicts(record.get("gpus"))],
        evidence=_evidence(_dict(record.get("evidence"))),
    )


def _card(gpu: Mapping[str, Any]) -> Card:
    index = gpu.get("index")
    name = f"GPU {index}: {_text(gpu.get('name'), 100) or 'unknown'}" if index is not None else "GPU"
    figures = [
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
        (
            "Throttle reasons",
            ", ".join(plain(str(reason), 60) for reason in list(_dict(gpu.get("reasons")))[:8]) or None,
        ),
        (
            "Measured",
            _unit(gpu.get("seconds"), " s") and f"{_unit(gpu.get('seconds'), ' s')}, {gpu.get('samples')} samples",
        ),
        ("UUID", _optional_text(gpu.get("uuid"))),
    ]
    lost = _dict(gpu.get("lost"))
    return Card(
        plain(name, 200),
        [(label, value) for label, value in figures if value],
        _processes(_dict(gpu.get("pids"))),
        _optional_text(lost.get("why")),
    )


def _processes(pids: Mapping[Any, Any]) -> list[str]:
    processes = []
    for pid, record in list(pids.items())[:_MAX_ITEMS]:
        facts = _dict(record)
        rank = facts.get("rank")
        load = _unit(facts.get("load"), " %")
        parts = [
            f"rank {rank}" if isinstance(rank, int) else None,
            f"{_text(facts.get('name'), 80) or 'process'} (PID {_text(pid, 20)})",
            _bytes(facts.get("peak")),
            f"{load} of the GPU" if load else None,
        ]
        processes.append(", ".join(word for word in parts if word))
    return processes


def _evidence(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    evidence = []
    for name, label in _EVIDENCE.items():
        value = record.get(name)
        text = _share(value) if name in _SHARES else _describe(value)
        if text:
            evidence.append((label, text))
    return evidence


def _describe(value: Any) -> str | None:
    if value is None or value is False or value == [] or value == {}:
        return None
    if isinstance(value, dict):
        return plain(
            ", ".join(f"{name} {_format_value(item)}" for name, item in list(value.items())[:_MAX_ITEMS]), 1000
        )
    if isinstance(value, list):
        return plain(", ".join(_format_value(item) for item in value[:_MAX_ITEMS]), 1000)
    return "yes" if value is True else _format_value(value)


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return plain(" ".join(f"{name}={item}" for name, item in list(value.items())[:12]), 300)
    return plain(f"{value:g}" if isinstance(value, float) else str(value), 300)


def _dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value[:_MAX_ITEMS] if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any, limit: int) -> str:
    return "" if value is None else plain(str(value), limit)


def _optional_text(value: Any) -> str | None:
    return plain(str(value), 2000) if value else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _share(value: Any) -> str | None:
    number = _number(value)
    return None if number is None else f"{number * 100:.1f} %" if number < 0.1 else f"{number * 100:.0f} %"


def _unit(value: Any, unit: str, digits: int = 0) -> str | None:
    number = _number(value)
    return None if number is None else f"{number:.{digits}f}{unit}"


def _bytes(value: Any) -> str | None:
    number = _number(value)
    return None if number is None else format_size(number)
