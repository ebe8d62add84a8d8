"""A cluster whose driver runs on this machine: nothing is logged in to, and two files are all there is to it."""

from __future__ import annotations

from ..config.files import create_target
from ..config.project import Project
from ..errors import LaunchError
from ..model import Compute
from ..paths import UserPaths
from ..targets.check import ERROR, WARNING
from ..targets.opening import open_target
from ..targets.sparkcheck import spark_findings
from .attached import Attached
from .wish import Wish


def attach_here(project: Project, wish: Wish, paths: UserPaths, there: Compute | None) -> Attached:
    """The master must answer; then the files are written, unless they say so already."""
    compute = there or compute_of(wish)
    findings = spark_findings(compute, open_target(compute, paths).host.ask)
    wrong = [one for one in findings if one.state == ERROR]
    if wrong:
        raise LaunchError(f"nothing was attached: {wrong[0].found}", wrong[0].hint, more=wrong[0].more)
    written = () if there else create_target(project.folder, compute, force=wish.replace)
    return Attached(
        written=tuple(str(path) for path in written),
        findings=tuple(one for one in findings if one.state == WARNING),
        kind=compute.type,
        identity=str(compute.spark_master or "yarn"),
    )


def compute_of(wish: Wish) -> Compute:
    """Where YARN runs the driver is said, for its own default brings no metrics home."""
    mode = "client" if wish.master in (None, "yarn") else None
    return Compute(wish.name, str(wish.kind), spark_master=wish.master, yarn_deploy_mode=mode)
