"""Decide whether a run used its GPUs, and provide the evidence. Pure functions.

The result is ``yes``, ``partly``, ``no``, or ``unknown``, with the reason.
"""

from __future__ import annotations

from ..shared.process_launchers import format_ranks
from .diagnosis import POOR_SHARE, Case, busy_share, diagnose, did_work, was_opened
from .rank_usage import UNEVEN_RATIO, describe_uneven_ranks, ranks_of
from .usage_totals import MAX_PROCESSES

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Facts = Dict[str, Any]

YES, PARTLY, NO, UNKNOWN = "yes", "partly", "no", "unknown"
RARE_SHARE = 0.1  # a GPU that is busy for less than this share of the time counts as partly used
_OTHERS_SHARE = 0.05
_GIB = 1024**3
_MAX_PROCESSES = 2


def decide_verdict(
    summary: Optional[Facts], requested: Optional[str], facts: Facts, evidence: Facts, failed: bool = False
) -> Facts:
    """Return the verdict on one run.

    ``summary`` contains the measurements, or is None if there are none. ``requested`` is the GPU request.
    ``facts`` contains ``started`` (whether the script started), ``held`` (whether the run had exclusive
    use of the GPUs), and ``problem`` (why there are no measurements). For ``evidence``, see ``gpu_evidence.py``.
    """
    gpus = [gpu for gpu in (summary or {}).get("gpus") or [] if gpu.get("samples")]
    used, reason = _decide_use(gpus, requested, facts, evidence.get("ranks") or [])
    case = Case(used, summary, requested, evidence, failed)
    diagnosis = None
    if used == NO or (used in (YES, PARTLY) and (failed or used == PARTLY or _is_poorly_used(gpus))):
        diagnosis = diagnose(case)
    verdict: Facts = {"used": used, "asked": requested, "reason": reason, "diagnosis": diagnosis}
    verdict["summary"] = _summarize(used, reason, gpus, requested is not None)
    verdict["line"] = "GPU used: " + used + (" – " + verdict["summary"] if verdict["summary"] else "")
    verdict["gpus"] = [_select_figures(gpu) for gpu in gpus]
    verdict["evidence"] = {name: evidence.get(name) for name in _EVIDENCE_KEYS if evidence.get(name) is not None}
    for name in ("cpu_share", "cpu_cores", "busiest", "disk_share"):
        if (summary or {}).get(name) is not None:
            verdict["evidence"][name] = (summary or {})[name]
    return verdict


_EVIDENCE_KEYS = ("driver", "cuda", "visible", "container", "container_gpus", "frameworks", "signs")
_FIGURES = (
    "index uuid name samples seconds busy_share mean_utilisation quantiles mine_share others_share peak_memory"
    " peak_memory_device peak_memory_others memory_total energy_wh mean_power max_power max_temperature throttled_share"
    " reasons pcie_rx pcie_tx nvlink_rx nvlink_tx pids others lost"
).split()


def _decide_use(
    gpus: List[Facts], requested: Optional[str], facts: Facts, ranks: List[int]
) -> "tuple[str, Optional[str]]":
    if not facts.get("started"):
        return NO, "the script was not started"
    if not gpus:
        return UNKNOWN, facts.get("problem") or "the run ended before anything could be measured"
    attributed = [gpu for gpu in gpus if gpu.get("mine_share") is not None]
    if not attributed:
        return _decide_by_load(gpus, facts)
    opened = [gpu for gpu in gpus if was_opened(gpu)]
    if not opened:
        return NO, "no process of the run opened a GPU"
    working = [gpu for gpu in opened if did_work(gpu)]
    if not working:
        if any(gpu.get("busy_share") is None for gpu in opened):
            return UNKNOWN, "the run opened the GPU, but the GPU does not report its utilization"
        return NO, "the run opened the GPU but ran nothing on it"
    if requested is not None and len(working) < len(gpus):
        idle = [gpu for gpu in gpus if gpu not in working]
        counts = "%d of %d GPUs were used, idle: " % (len(working), len(gpus))
        return PARTLY, counts + _format_indexes(idle) + _describe_idle_ranks(gpus, ranks, "; ")
    if max(busy_share(gpu) or 0.0 for gpu in working) < RARE_SHARE:
        return PARTLY, "it was busy only a small part of the time"
    shared = not facts.get("held") and all((gpu.get("others_share") or 0) > _OTHERS_SHARE for gpu in working)
    if shared:
        return YES, "other processes used it at the same time, so the figures include theirs"
    idle_ranks = _describe_idle_ranks(gpus, ranks)
    if idle_ranks:
        return YES, idle_ranks
    return YES, (_describe_uneven_load(working) or describe_uneven_ranks(gpus)) if requested is not None else None


def _describe_uneven_load(gpus: List[Facts]) -> Optional[str]:
    """Describe a load that some GPUs hardly share, such as when one process prepares all data."""
    loads = sorted((share, _format_indexes([gpu])) for gpu in gpus for share in [busy_share(gpu)] if share is not None)
    if len(loads) < 2 or loads[0][0] >= UNEVEN_RATIO * loads[-1][0]:
        return None
    parts = "%s was busy %.0f %% of the time, %s %.0f %%"
    return "the load was uneven: " + parts % (loads[-1][1], loads[-1][0] * 100, loads[0][1], loads[0][0] * 100)


def _describe_idle_ranks(gpus: List[Facts], ranks: List[int], start: str = "") -> str:
    """Describe which of the started ``ranks`` used no GPU, or return "" if the ranks of the processes are not known."""
    using = {rank for gpu in gpus for rank in ranks_of(gpu)}
    idle = [rank for rank in ranks if rank not in using]
    if any(len(gpu.get("pids") or ()) >= MAX_PROCESSES for gpu in gpus):
        return ""  # not all processes are listed
    return start + "%s used no GPU" % format_ranks(idle) if using and idle else ""


def _format_indexes(gpus: List[Facts]) -> str:
    return ", ".join(_format_index(gpu) for gpu in gpus)


def _format_index(gpu: Facts) -> str:
    ranks = ranks_of(gpu)
    return "GPU %s" % gpu.get("index") + (" (%s)" % format_ranks(ranks) if ranks else "")


def _decide_by_load(gpus: List[Facts], facts: Facts) -> "tuple[str, Optional[str]]":
    """Decide based on utilization, because the driver does not report which processes use the GPU."""
    why = "the driver does not report which processes use the GPU"
    if not facts.get("held"):
        return UNKNOWN, why
    shares = [gpu["busy_share"] for gpu in gpus if gpu.get("busy_share") is not None]
    if not shares:
        return UNKNOWN, why + ", nor its utilization"
    return (YES, why + ", but the run had exclusive use of it") if max(shares) > 0 else (NO, "the GPU was idle")


def _is_poorly_used(gpus: List[Facts]) -> bool:
    shares = [share for share in (busy_share(gpu) for gpu in gpus if was_opened(gpu)) if share is not None]
    slow = [gpu for gpu in gpus if (gpu.get("throttled_share") or 0) > 0 or gpu.get("lost")]
    return bool(slow) or (bool(shares) and max(shares) < POOR_SHARE)


def _select_figures(gpu: Facts) -> Facts:
    return {name: gpu.get(name) for name in _FIGURES}


# -- the summary -------------------------------------------------------------------------------------------


def _summarize(used: str, reason: Optional[str], gpus: List[Facts], requested: bool) -> Optional[str]:
    shown = [gpu for gpu in gpus if was_opened(gpu)] or gpus
    if used in (YES, PARTLY) and shown:
        parts = [
            "%d of %d" % (len(gpus), len(gpus)) if used == YES and requested and len(gpus) > 1 else None,
            _format_names(shown),
            _format_share(shown),
            _format_peak(shown),
            _format_energy(shown),
            _format_processes(shown),
        ]
        return ", ".join(part for part in parts if part) + ("; " + reason if reason else "")
    return reason


def _format_names(gpus: List[Facts]) -> str:
    counts: Dict[str, int] = {}
    for gpu in gpus:
        name = str(gpu.get("name") or "unknown GPU")
        counts[name] = counts.get(name, 0) + 1
    return ", ".join("%d × %s" % (count, name) if count > 1 else name for name, count in counts.items())


def _format_share(gpus: List[Facts]) -> Optional[str]:
    shares = [share for share in (busy_share(gpu) for gpu in gpus) if share is not None]
    if not shares:
        return None
    share = sum(shares) / len(shares)
    return "%s %% of the time" % (("%.1f" if share < RARE_SHARE else "%.0f") % (share * 100))


def _format_peak(gpus: List[Facts]) -> Optional[str]:
    peaks = [gpu.get("peak_memory") or 0 for gpu in gpus]
    return "peak %s" % format_size(max(peaks)) if any(peaks) else None


def _format_energy(gpus: List[Facts]) -> Optional[str]:
    readings = [gpu["energy_wh"] for gpu in gpus if gpu.get("energy_wh") is not None]
    if not readings:
        return None
    total = sum(readings)
    return "%s Wh" % (("%.0f" if total >= 10 else "%.2g") % total)


def _format_processes(gpus: List[Facts]) -> Optional[str]:
    ranks = sorted({rank for gpu in gpus for rank in ranks_of(gpu)})
    if ranks:
        return "by " + format_ranks(ranks)
    processes: Dict[str, str] = {}
    for gpu in gpus:
        for pid, process in (gpu.get("pids") or {}).items():
            processes[str(pid)] = str((process or {}).get("name") or "a process")
    names = ["%s (pid %s)" % (name, pid) for pid, name in list(processes.items())[:_MAX_PROCESSES]]
    more = ", and %d more" % (len(processes) - _MAX_PROCESSES) if len(processes) > _MAX_PROCESSES else ""
    return "by %s%s" % (", ".join(names), more) if names else None


def format_size(count: float) -> str:
    """Format a number of bytes, such as ``71 GiB`` or ``512 MiB``."""
    if count < _GIB:
        return "%.0f MiB" % (count / 1024**2)
    return ("%.0f GiB" if count >= 10 * _GIB else "%.1f GiB") % (count / _GIB)


def start_line(gpu: Facts) -> str:
    """Describe a GPU for the start of a run's log, in the same order as Azure ML Workbench."""
    parts = ["GPU %s: %s" % (gpu.get("index"), gpu.get("name") or "unknown")]
    if gpu.get("capability"):
        parts.append("compute capability %s" % gpu["capability"])
    if gpu.get("memory_clock"):
        parts.append("memory clock %.3g GHz" % (gpu["memory_clock"] / 1000))
    if gpu.get("bus_id"):
        parts.append("PCI bus id %s" % gpu["bus_id"])
    for key, name in (("memory_total", "total"), ("memory_free", "free")):
        if gpu.get(key) is not None:
            parts.append("%s memory %.2f GiB" % (name, gpu[key] / _GIB))
    return ", ".join(parts)
