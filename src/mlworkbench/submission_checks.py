"""Checks of a submission before anything is uploaded: GPUs, Spark, process launchers, and compatibility."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .config.project_folder import Project
from .environments.selection import is_managed
from .errors import PreflightError
from .frameworks.framework import Setting
from .model import Compute, Entry, JsonDict, RunConfig
from .submit_request import Request
from .targets.target import Target
from .targets.target_facts import TargetFacts
from .targets.types import Feature

if TYPE_CHECKING:
    from .preflight.finding import Finding


def check_gpus(request: Request, runconfig: RunConfig, compute: Compute, target: Target, *, stop: bool) -> None:
    """Raise an error, before anything is recorded, if the target lacks the requested GPUs."""
    gpu_request = request.gpu_request or runconfig.gpus
    if not stop or gpu_request is None or not target.type.has(Feature.GPU_LEASES):  # no leases: the GPUs are elsewhere
        return
    from .targets.gpu_request_check import refuse_unmatched  # noqa: PLC0415 - most runs ask for none

    refuse_unmatched(gpu_request, compute.name, target.host)


def check_spark(setting: Setting, ask: Callable[[JsonDict], JsonDict], *, stop: bool) -> tuple[Finding, ...]:
    """Raise an error if Spark is missing, before anything is uploaded. Return other findings."""
    from .preflight.spark_rules import deploy_warnings, find_missing  # noqa: PLC0415 - for PySpark only

    problem = find_missing(setting, ask) if stop else None
    if problem is not None:
        raise PreflightError(problem.message, problem.hint, more="no-spark")
    return deploy_warnings(setting)


def check_launcher(
    processes: JsonDict,
    setting: Setting,
    path: Sequence[str],
    ask: Callable[[JsonDict], JsonDict],
    *,
    stop: bool,
) -> None:
    """Raise an error if the program that starts the processes is missing. ``path``: folders before PATH."""
    from .preflight.launcher_rules import find_missing_launcher  # noqa: PLC0415 - few runs use a launcher

    problem = find_missing_launcher(processes["launcher"], setting, path, ask) if stop else None
    if problem is not None:
        raise PreflightError(problem.message, problem.hint, more="no-launcher")


def check_compatibility(
    project: Project,
    runconfig: RunConfig,
    compute: Compute,
    target_facts: TargetFacts,
    entry: Entry | None,
    *,
    stop: bool,
) -> tuple[Finding, ...]:
    """Check compatibility before anything is uploaded. Errors stop the run; return other findings."""
    from .preflight.checker import preflight  # noqa: PLC0415 - few other commands need it

    findings = preflight(
        project, runconfig, compute, target_facts.facts or None, entry, managed=is_managed(compute, runconfig)
    )
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors and stop:
        lines = [f"  {finding}\n    hint: {finding.hint}" for finding in errors]
        raise PreflightError(
            "preflight checks failed for " + compute.name + ":\n" + "\n".join(lines),
            ("mlw project doctor --fix applies the suggested fixes; " if any(finding.fix for finding in errors) else "")
            + "--unchecked submits anyway",
            more="cannot-work-there",
        )
    return tuple(findings)
