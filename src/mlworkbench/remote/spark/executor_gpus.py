"""GPUs that executors were given, in the verdict on the run's GPUs. Those elsewhere are nobody's to measure. Pure."""

from __future__ import annotations

import socket

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from ..run_spec import Spec

    Facts = Dict[str, Any]

AMOUNT = "spark.executor.resource.gpu.amount"
_NAMED = 3
_WORKER = (
    "configure the GPUs of every worker (spark.worker.resource.gpu.amount and"
    " spark.worker.resource.gpu.discoveryScript in its spark-defaults.conf) and restart it; on YARN, configure GPUs"
    " in the node managers"
)
_LOCAL = "with a local master the script is its own executor: set Gpus in the run configuration instead"


def asked_for(spec: Spec, settings: Facts) -> Optional[str]:
    """How many for each executor: as the application had it set, or as it was submitted."""
    words = spec["commands"][-1]["argv"]
    told = [word.partition("=")[2] for word in words if word.startswith(AMOUNT + "=")]
    amount = settings.get(AMOUNT) or (told[-1] if told else None)
    return None if amount in (None, "", "0") else str(amount)[:20]


def judge(
    verdict: Optional[Facts], asked: str, given: Optional[Dict[str, List[str]]], started: bool, master: str
) -> Facts:
    """``verdict``: what was measured on this machine, executors here included; None if nothing was.

    ``given``: None if the application has told nothing.
    """
    made = dict(verdict or {"gpus": [], "evidence": {}})
    if given is None and started:
        if made.get("used") in ("yes", "partly"):
            return made
        return _decide(made, "unknown", "Spark's events were not read, so the executors' GPUs are unknown")
    given = given or {}
    made["evidence"] = dict(made.get("evidence") or {}, executors=[_words(host, given[host]) for host in given])
    made["asked"] = "; ".join(one for one in (made.get("asked"), "%s %s" % (AMOUNT, asked)) if one)
    away = [host for host in given if not is_here(host)]
    used = made.get("used")
    if not started:
        return _decide(made, "no", "the script was not started")
    if not given:
        if used in ("yes", "partly"):
            return _add(made, "no executor received a GPU")  # the driver used one
        cause = "%s is %s, but no executor received a GPU" % (AMOUNT, asked)
        found = {"cause": cause, "remedy": _remedy(master), "explain": "gpu-not-used"}
        return _decide(made, "no", "no executor received a GPU", found)
    if used in ("yes", "partly"):
        return _add(made, "not measured: " + _list(away, given)) if away else made
    if away:
        return _decide(
            made, "unknown", "executors received GPUs that cannot be measured from here: " + _list(away, given)
        )
    return made if verdict else _decide(made, "unknown", "the GPU usage of executors on this machine was not measured")


def _remedy(master: str) -> str:
    return _LOCAL if master.startswith("local") else _WORKER


def _decide(made: Facts, used: str, reason: str, diagnosis: Optional[Facts] = None) -> Facts:
    made.update(used=used, reason=reason, summary=reason, diagnosis=diagnosis)
    return _with_line(made)


def _add(made: Facts, reason: str) -> Facts:
    made["reason"] = "; ".join(one for one in (made.get("reason"), reason) if one)
    made["summary"] = "; ".join(one for one in (made.get("summary"), reason) if one)
    return _with_line(made)


def _with_line(made: Facts) -> Facts:
    made["line"] = "GPU used: %s \u2013 %s" % (made["used"], made["summary"])
    return made


def _list(hosts: List[str], given: Dict[str, List[str]]) -> str:
    more = ", and %d more machines" % (len(hosts) - _NAMED) if len(hosts) > _NAMED else ""
    return ", ".join(_words(host, given[host]) for host in hosts[:_NAMED]) + more


def _words(host: str, gpus: List[str]) -> str:
    return "GPU %s of %s" % (", ".join(gpus[:8]), host)


def is_here(host: str) -> bool:
    """Whether an executor's host is this machine. Its name, or an address that this machine can call its own."""
    name = socket.gethostname()
    if host in ("localhost", name, name.partition(".")[0]):
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)  # a name is not looked up: that could take long
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.bind((host, 0))
        return True
    except OSError:
        return False
