"""Add the GPUs of Spark executors to a run's GPU verdict. GPUs on other machines cannot be measured."""

from __future__ import annotations

import socket

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from ..run_spec import Spec

    Facts = Dict[str, Any]

AMOUNT = "spark.executor.resource.gpu.amount"
_MAX_HOSTS = 3
_WORKER_REMEDY = (
    "configure the GPUs of every worker (spark.worker.resource.gpu.amount and"
    " spark.worker.resource.gpu.discoveryScript in its spark-defaults.conf) and restart it; on YARN, configure GPUs"
    " in the node managers"
)
_LOCAL_REMEDY = "with a local master the script is its own executor: set Gpus in the run configuration instead"


def requested_amount(spec: Spec, settings: Facts) -> Optional[str]:
    """Return the number of GPUs per executor from the settings, or from the submitted command."""
    arguments = spec["commands"][-1]["argv"]
    values = [argument.partition("=")[2] for argument in arguments if argument.startswith(AMOUNT + "=")]
    amount = settings.get(AMOUNT) or (values[-1] if values else None)
    return None if amount in (None, "", "0") else str(amount)[:20]


def executor_verdict(
    verdict: Optional[Facts], requested: str, given: Optional[Dict[str, List[str]]], started: bool, master: str
) -> Facts:
    """Return the GPU verdict of a run that requested GPUs for its Spark executors.

    ``verdict`` is the verdict from measurements on this machine, including its executors, or None if
    nothing was measured. ``given`` contains the executors' GPUs by host, or is None if no Spark events
    were read. ``started``: whether the script was started.
    """
    result = dict(verdict or {"gpus": [], "evidence": {}})
    if given is None and started:
        if result.get("used") in ("yes", "partly"):
            return result
        return _set_verdict(result, "unknown", "Spark's events were not read, so the executors' GPUs are unknown")
    given = given or {}
    result["evidence"] = dict(
        result.get("evidence") or {}, executors=[_format_host(host, given[host]) for host in given]
    )
    result["asked"] = "; ".join(part for part in (result.get("asked"), "%s %s" % (AMOUNT, requested)) if part)
    remote_hosts = [host for host in given if not is_this_machine(host)]
    used = result.get("used")
    if not started:
        return _set_verdict(result, "no", "the script was not started")
    if not given:
        if used in ("yes", "partly"):
            return _add_reason(result, "no executor received a GPU")  # the driver used a GPU
        cause = "%s is %s, but no executor received a GPU" % (AMOUNT, requested)
        diagnosis = {"cause": cause, "remedy": _remedy(master), "explain": "gpu-not-used"}
        return _set_verdict(result, "no", "no executor received a GPU", diagnosis)
    if used in ("yes", "partly"):
        return _add_reason(result, "not measured: " + _format_hosts(remote_hosts, given)) if remote_hosts else result
    if remote_hosts:
        return _set_verdict(
            result,
            "unknown",
            "executors received GPUs that cannot be measured from here: " + _format_hosts(remote_hosts, given),
        )
    return (
        result
        if verdict
        else _set_verdict(result, "unknown", "the GPU usage of executors on this machine was not measured")
    )


def _remedy(master: str) -> str:
    return _LOCAL_REMEDY if master.startswith("local") else _WORKER_REMEDY


def _set_verdict(verdict: Facts, used: str, reason: str, diagnosis: Optional[Facts] = None) -> Facts:
    verdict.update(used=used, reason=reason, summary=reason, diagnosis=diagnosis)
    return _update_line(verdict)


def _add_reason(verdict: Facts, reason: str) -> Facts:
    verdict["reason"] = "; ".join(part for part in (verdict.get("reason"), reason) if part)
    verdict["summary"] = "; ".join(part for part in (verdict.get("summary"), reason) if part)
    return _update_line(verdict)


def _update_line(verdict: Facts) -> Facts:
    verdict["line"] = "GPU used: %s \u2013 %s" % (verdict["used"], verdict["summary"])
    return verdict


def _format_hosts(hosts: List[str], given: Dict[str, List[str]]) -> str:
    more = ", and %d more machines" % (len(hosts) - _MAX_HOSTS) if len(hosts) > _MAX_HOSTS else ""
    return ", ".join(_format_host(host, given[host]) for host in hosts[:_MAX_HOSTS]) + more


def _format_host(host: str, gpus: List[str]) -> str:
    return "GPU %s of %s" % (", ".join(gpus[:8]), host)


def is_this_machine(host: str) -> bool:
    """Return whether an executor's host is this machine, by name or by a local address."""
    name = socket.gethostname()
    if host in ("localhost", name, name.partition(".")[0]):
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)  # fails for names, which are not resolved because that could be slow
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((host, 0))
        return True
    except OSError:
        return False
