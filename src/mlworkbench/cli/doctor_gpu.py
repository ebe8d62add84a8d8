"""``mlw doctor gpu``: test every step from a script to a target's GPU."""

from __future__ import annotations

import os

import click

from ..config.keys import DEFAULT_IMAGE
from ..config.project_folder import Project
from ..environments.existing import find_python
from ..environments.selection import is_managed
from ..errors import ConfigError, LaunchError
from ..hosts.host_facts import Facts
from ..hosts.replies import Reply
from ..model import Compute
from ..paths import UserPaths, user_paths
from ..targets.container_plan import probe
from ..targets.gpu_check import gpu_findings
from ..targets.machine_check import is_fit
from ..targets.target_factory import open_target
from ..targets.target_facts import choose_engine
from ..targets.types import is_local_process, type_of
from . import render
from .completion_types import complete_target
from .finding_tables import show_findings
from .options import get_project, project_option, result_options

_TIMEOUT = 600.0  # seconds; importing frameworks from a slow disk takes a long time


@click.command(epilog="Example: mlw doctor gpu -t my_dsvm")
@click.option(
    "-t",
    "--target",
    metavar="NAME",
    default="local",
    shell_complete=complete_target,
    help="Compute target (default: local)",
)
@project_option
@result_options
def gpu(target: str, folder: str | None, output: str, query: str | None) -> int:
    """Test GPU access on a target step by step.

    Tests the driver, NVML, the container toolkit, a container, and the framework. Starts the target's Python, including
    a Python that the project specifies. If PyTorch, TensorFlow, JAX, or CuPy is installed, runs a small computation on
    the GPU. If mlw builds the environments, tests the newest one. Installs and downloads nothing. Exits with 75 if a
    step fails.
    """
    project, paths = get_project(folder), user_paths()
    compute = project.compute(target)
    host = open_target(compute, paths).host
    facts = host.facts()
    is_container = type_of(compute).contained
    request = {
        "do": "gpu doctor",
        "python": None if is_container else _python_path(project, compute, paths),
        "container": _container_probe(compute, facts) if is_container else None,
        "managed": is_managed(compute),
    }
    reply = Reply(host.identity, host.ask(request, timeout=_TIMEOUT)).require_ok(
        f"{host.identity} could not test its GPUs"
    )
    findings = gpu_findings(reply.mapping("found"), facts, compute)
    show_findings(findings, output, query)
    return 0 if is_fit(findings) else LaunchError.exit_code


def _python_path(project: Project, compute: Compute, paths: UserPaths) -> str | None:
    """Return the interpreter that runs scripts: a path, or a name that the remote machine resolves."""
    if not is_local_process(compute):
        return compute.python_location or "python3"
    try:
        return find_python(compute.python_location, os.environ, project.root, paths.interpreters).path
    except ConfigError as error:
        render.warn(error.message)  # the other steps do not need Python
        return None


def _container_probe(compute: Compute, facts: Facts) -> dict[str, object]:
    """Return the container to start, or an empty dict if no engine is usable (see the findings)."""
    try:
        engine = choose_engine(facts, compute)
    except LaunchError:
        return {}
    image = compute.base_docker_image or DEFAULT_IMAGE
    return {**probe(engine, facts.user.uid or 0, facts.user.gid or 0, image), "gpus": ["all"]}
