"""Attach clusters that are used from this machine: write two files, without a login."""

from __future__ import annotations

from dataclasses import replace

from ..config.config_files import create_target
from ..config.project_folder import Project
from ..errors import LaunchError
from ..model import Compute
from ..paths import UserPaths
from ..targets.cluster_check import cluster_findings
from ..targets.machine_check import ERROR, WARNING
from ..targets.target_factory import open_target
from ..targets.types import JOB, MASTER, type_of
from .attach_report import AttachReport
from .attach_request import AttachRequest


def attach_local_cluster(
    project: Project, request: AttachRequest, paths: UserPaths, existing: Compute | None
) -> AttachReport:
    """Check that the cluster responds, then write the files unless they are up to date."""
    compute = existing or compute_of(request)
    findings = cluster_findings(compute, open_target(compute, paths).host)
    wrong = [finding for finding in findings if finding.state == ERROR]
    if wrong:
        raise LaunchError(f"nothing was attached: {wrong[0].found}", wrong[0].hint, more=wrong[0].more)
    written = () if existing else create_target(project.folder, compute, force=request.replace)
    return AttachReport(
        written=tuple(str(path) for path in written),
        findings=tuple(finding for finding in findings if finding.state == WARNING),
        kind=compute.type,
        identity="this machine" if type_of(compute).asks(JOB) else str(compute.spark_master or "yarn"),
    )


def compute_of(request: AttachRequest) -> Compute:
    """Return the target. On YARN, use deploy mode client, because the default returns no metrics."""
    compute = replace(Compute(request.name, str(request.kind)), **vars(request.job))
    if not type_of(compute).asks(MASTER):
        return compute
    mode = "client" if request.master in (None, "yarn") else None
    return replace(compute, spark_master=request.master, yarn_deploy_mode=mode)
