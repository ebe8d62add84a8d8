"""Whether a run used its GPUs, with the evidence for it. Pure.

``yes``, ``partly``, ``no``, or ``unknown`` with the reason why it cannot be known.
"""

from __future__ import annotations

from .diagnosis import POOR, Case, diagnose, opened, share_of, worked

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Facts = Dict[str, Any]

YES, PARTLY, NO, UNKNOWN = "yes", "partly", "no", "unknown"
RARELY = 0.1  # below this share of the time a GPU was used in part only
_SHARED = 0.05
_GIB = 1024**3
_NAMED = 2


def judge(summary: Optional[Facts], asked: Optional[str], facts: Facts, evidence: Facts, failed: bool = False) -> Facts:
    """The verdict on one run.

    ``summary``: what was measured, None if nothing was; ``asked``: the request; ``facts``: ``started``, ``held`` (the
    run had these GPUs for itself), ``problem`` (why nothing was measured); ``evidence``: see ``evidence.py``.
    """
    gpus = [gpu for gpu in (summary or {}).get("gpus") or [] if gpu.get("samples")]
    used, reason = _used(gpus, asked, facts)
    case = Case(used, summary, asked, evidence, failed)
    found = None
    if used == NO or (used in (YES, PARTLY) and (failed or used == PARTLY or _poorly(gpus))):
        found = diagnose(case)
    made: Facts = {"used": used, "asked": asked, "reason": reason, "diagnosis": found}
    made["summary"] = _summary(used, reason, gpus)
    made["line"] = "GPU used: " + used + (" – " + made["summary"] if made["summary"] else "")
    made["gpus"] = [_figures(gpu) for gpu in gpus]
    made["evidence"] = {name: evidence.get(name) for name in _KEPT if evidence.get(name) is not None}
    for name in ("cpu_share", "cpu_cores", "busiest", "disk_share"):
        if (summary or {}).get(name) is not None:
            made["evidence"][name] = (summary or {})[name]
    return made


_KEPT = ("driver", "cuda", "visible", "container", "container_gpus", "frameworks", "signs")
_FIGURES = (
    "index uuid name samples seconds busy_share mean_utilisation quantiles mine_share others_share peak_memory"
    " peak_memory_device peak_memory_others memory_total energy_wh mean_power max_power max_temperature throttled_share"
    " reasons pcie_rx pcie_tx nvlink_rx nvlink_tx pids others lost"
).split()


def _used(gpus: List[Facts], asked: Optional[str], facts: Facts) -> "tuple[str, Optional[str]]":
    if not facts.get("started"):
        return NO, "the script was not started"
    if not gpus:
        return UNKNOWN, facts.get("problem") or "the run ended before anything could be measured"
    told = [gpu for gpu in gpus if gpu.get("mine_share") is not None]
    if not told:
        return _by_load(gpus, facts)
    mine = [gpu for gpu in gpus if opened(gpu)]
    if not mine:
        return NO, "no process of the run opened a GPU"
    busy = [gpu for gpu in mine if worked(gpu)]
    if not busy:
        if any(gpu.get("busy_share") is None for gpu in mine):
            return UNKNOWN, "the run opened the GPU, but the GPU does not report its utilization"
        return NO, "the run opened the GPU but ran nothing on it"
    if asked is not None and len(busy) < len(gpus):
        return PARTLY, "%d of %d GPUs were used" % (len(busy), len(gpus))
    if max(share_of(gpu) or 0.0 for gpu in busy) < RARELY:
        return PARTLY, "it was busy only a small part of the time"
    shared = not facts.get("held") and all((gpu.get("others_share") or 0) > _SHARED for gpu in busy)
    return YES, "other processes used it at the same time, so the figures include theirs" if shared else None


def _by_load(gpus: List[Facts], facts: Facts) -> "tuple[str, Optional[str]]":
    """The driver does not say whose the processes on a GPU are."""
    why = "the driver does not report which processes use the GPU"
    if not facts.get("held"):
        return UNKNOWN, why
    shares = [gpu["busy_share"] for gpu in gpus if gpu.get("busy_share") is not None]
    if not shares:
        return UNKNOWN, why + ", nor its utilization"
    return (YES, why + ", but the run had exclusive use of it") if max(shares) > 0 else (NO, "the GPU was idle")


def _poorly(gpus: List[Facts]) -> bool:
    shares = [share for share in (share_of(gpu) for gpu in gpus if opened(gpu)) if share is not None]
    slow = [gpu for gpu in gpus if (gpu.get("throttled_share") or 0) > 0 or gpu.get("lost")]
    return bool(slow) or (bool(shares) and max(shares) < POOR)


def _figures(gpu: Facts) -> Facts:
    return {name: gpu.get(name) for name in _FIGURES}


# -- the summary ----------------------------------------------------------------------------------------------


def _summary(used: str, reason: Optional[str], gpus: List[Facts]) -> Optional[str]:
    shown = [gpu for gpu in gpus if opened(gpu)] or gpus
    if used in (YES, PARTLY) and shown:
        parts = [_names(shown), _share(shown), _peak(shown), _energy(shown), _by(shown)]
        return ", ".join(part for part in parts if part) + ("; " + reason if reason else "")
    return reason


def _names(gpus: List[Facts]) -> str:
    counts: Dict[str, int] = {}
    for gpu in gpus:
        name = str(gpu.get("name") or "unknown GPU")
        counts[name] = counts.get(name, 0) + 1
    return ", ".join("%d × %s" % (count, name) if count > 1 else name for name, count in counts.items())


def _share(gpus: List[Facts]) -> Optional[str]:
    shares = [share for share in (share_of(gpu) for gpu in gpus) if share is not None]
    if not shares:
        return None
    share = sum(shares) / len(shares)
    return "%s %% of the time" % (("%.1f" if share < RARELY else "%.0f") % (share * 100))


def _peak(gpus: List[Facts]) -> Optional[str]:
    peaks = [gpu.get("peak_memory") or 0 for gpu in gpus]
    return "peak %s" % size(max(peaks)) if any(peaks) else None


def _energy(gpus: List[Facts]) -> Optional[str]:
    found = [gpu["energy_wh"] for gpu in gpus if gpu.get("energy_wh") is not None]
    if not found:
        return None
    whole = sum(found)
    return "%s Wh" % (("%.0f" if whole >= 10 else "%.2g") % whole)


def _by(gpus: List[Facts]) -> Optional[str]:
    seen: Dict[str, str] = {}
    for gpu in gpus:
        for pid, process in (gpu.get("pids") or {}).items():
            seen[str(pid)] = str((process or {}).get("name") or "a process")
    names = ["%s (pid %s)" % (name, pid) for pid, name in list(seen.items())[:_NAMED]]
    more = ", and %d more" % (len(seen) - _NAMED) if len(seen) > _NAMED else ""
    return "by %s%s" % (", ".join(names), more) if names else None


def size(count: float) -> str:
    """``71 GiB``, ``512 MiB``."""
    if count < _GIB:
        return "%.0f MiB" % (count / 1024**2)
    return ("%.0f GiB" if count >= 10 * _GIB else "%.1f GiB") % (count / _GIB)


def start_line(gpu: Facts) -> str:
    """What a run is told of a GPU that it gets, in the order of the original's log."""
    words = ["GPU %s: %s" % (gpu.get("index"), gpu.get("name") or "unknown")]
    if gpu.get("capability"):
        words.append("compute capability %s" % gpu["capability"])
    if gpu.get("memory_clock"):
        words.append("memory clock %.3g GHz" % (gpu["memory_clock"] / 1000))
    if gpu.get("bus_id"):
        words.append("PCI bus id %s" % gpu["bus_id"])
    for key, name in (("memory_total", "total"), ("memory_free", "free")):
        if gpu.get(key) is not None:
            words.append("%s memory %.2f GiB" % (name, gpu[key] / _GIB))
    return ", ".join(words)
