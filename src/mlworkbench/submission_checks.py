"""Checks of a submission before anything is uploaded: GPUs, Spark, launchers, schedulers, and compatibility."""

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
    from .paths import UserPaths
    from .preflight.finding import Finding


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


def check_resources(
    request: Request,
    runconfig: RunConfig,
    compute: Compute,
    target: Target,
    scheduler: JsonDict | None,
    paths: UserPaths,
) -> tuple[Finding, ...]:
    """Raise an error if the target can never provide what the run requests. Return other findings."""
    if scheduler is not None:
        return _check_scheduler(scheduler, compute, target, paths, request)
    gpu_request = request.gpu_request or runconfig.gpus
    if gpu_request is not None and not request.unchecked and target.type.has(Feature.GPU_LEASES):
        from .targets.gpu_request_check import refuse_unmatched  # noqa: PLC0415 - most runs ask for none

        refuse_unmatched(gpu_request, compute.name, target.host)
    return ()


def _check_scheduler(
    scheduler: JsonDict, compute: Compute, target: Target, paths: UserPaths, request: Request
) -> tuple[Finding, ...]:
    """Raise an error if the cluster can never start the job. Return other findings.

    Stored facts may be outdated, so the cluster is asked before an error.
    """
    from .preflight.finding import ERROR  # noqa: PLC0415 - for clusters only
    from .preflight.slurm_rules import scheduler_findings  # noqa: PLC0415
    from .targets.slurm_facts import known_slurm_facts, update_slurm_facts  # noqa: PLC0415

    known = known_slurm_facts(target.host, paths)
    findings = scheduler_findings(scheduler, compute, known, request.time_limit) if known else []
    if known is None or any(finding.severity == ERROR for finding in findings):
        findings = scheduler_findings(scheduler, compute, update_slurm_facts(target.host, paths), request.time_limit)
    _raise_errors(findings, compute, stop=not request.unchecked)
    return tuple(findings)


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
    _raise_errors(findings, compute, stop=stop)
    return tuple(findings)


def _raise_errors(findings: Sequence[Finding], compute: Compute, *, stop: bool) -> None:
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors and stop:
        lines = [f"  {finding}\n    hint: {finding.hint}" for finding in errors]
        raise PreflightError(
            "preflight checks failed for " + compute.name + ":\n" + "\n".join(lines),
            ("mlw project doctor --fix applies the suggested fixes; " if any(finding.fix for finding in errors) else "")
            + "--unchecked submits anyway",
            more="cannot-work-there",
        )
