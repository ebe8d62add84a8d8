"""Check the Spark installation on a machine and the response of its master, for attach and check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..hosts.replies import Reply, printable
from ..model import Compute
from .machine_check import ERROR, OK, WARNING, Finding

Ask = Callable[[dict[str, Any]], dict[str, Any]]


def spark_findings(compute: Compute, ask: Ask) -> list[Finding]:
    """Return the findings. Missing Spark is not an error, because the environment may contain it."""
    master = compute.spark_master
    where = f"{compute.address}" if compute.address else "this machine"
    request = {"do": "spark", "python": None, "location": compute.spark_submit_location, "master": master}
    reply = Reply(where, ask(request))
    findings = [_spark(reply)]
    lost = printable(reply.text("unreachable"))
    if master and lost:
        hint = "start it, and check its address (sparkMaster in the .compute file) and firewalls"
        findings.append(Finding("master", ERROR, f"{where} cannot reach {master}: {lost}", hint))
    elif master and reply.has_value("reached"):
        findings.append(Finding("master", OK, f"{master} is reachable"))
    return findings


def _spark(reply: Reply) -> Finding:
    if reply.has_value("problem"):
        hint = "add pyspark to the packages and install Java on the target, or set sparkSubmitLocation"
        return Finding("spark", WARNING, reply.problem, hint)
    java = f", Java {printable(reply.text('java'))}" if reply.has_value("java") else ""
    return Finding("spark", OK, f"{printable(reply.text('spark')) or 'not checked'}{java}")
