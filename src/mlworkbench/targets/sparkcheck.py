"""What a machine has of Spark, and whether the master answers it: findings for attach and check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..model import Compute
from .check import ERROR, OK, WARNING, Finding

Ask = Callable[[dict[str, Any]], dict[str, Any]]


def spark_findings(compute: Compute, ask: Ask) -> list[Finding]:
    """A Spark that is missing is no error: the environment may bring its own."""
    master = compute.spark_master
    answer = ask({"do": "spark", "python": None, "location": compute.spark_submit_location, "master": master})
    found = [_spark(answer)]
    where = f"{compute.address}" if compute.address else "this machine"
    if master and answer.get("unreachable"):
        hint = "start it, look at its address and at firewalls; sparkMaster in the .compute file names it"
        found.append(Finding("master", ERROR, f"{master} does not answer {where}: {answer['unreachable']}", hint))
    elif master and answer.get("reached"):
        found.append(Finding("master", OK, f"{master} answers"))
    return found


def _spark(answer: dict[str, Any]) -> Finding:
    if answer.get("problem"):
        hint = "list pyspark among the packages, and install Java there; or set sparkSubmitLocation"
        return Finding("spark", WARNING, str(answer["problem"]), hint)
    java = f", Java {answer['java']}" if answer.get("java") else ""
    return Finding("spark", OK, f"{answer.get('spark') or 'not looked for'}{java}")
