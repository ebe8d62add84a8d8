"""``mlw doctor gpu``: the whole way from a script to the GPU of a target, link by link."""

from __future__ import annotations

import os

import click

from ..config.keys import DEFAULT_IMAGE
from ..config.project import Project
from ..environments.choose import is_managed
from ..environments.existing import find_python
from ..errors import ConfigError, LaunchError
from ..hosts.facts import Facts
from ..hosts.replies import Reply
from ..model import Compute
from ..paths import UserPaths, user_paths
from ..targets.check import is_fit
from ..targets.container import probe
from ..targets.gpucheck import judge_gpus
from ..targets.ground import choose_engine
from ..targets.opening import open_target
from ..targets.types import is_local_process, type_of
from . import render
from .completion import complete_target
from .findings import show_findings
from .options import in_project, rendering, the_project

_PATIENCE = 600.0  # frameworks are loaded there, from a disk that may be slow


@click.command(epilog="Example: mlw doctor gpu -t my_dsvm")
@click.option(
    "-t",
    "--target",
    metavar="NAME",
    default="local",
    shell_complete=complete_target,
    help="Compute target (default: local)",
)
@in_project
@rendering
def gpu(target: str, folder: str | None, output: str, query: str | None) -> int:
    """Test GPU access on a target step by step.

    Tests the driver, NVML, the container toolkit, a container, and the framework. Starts the target's Python, including
    a Python that the project specifies. If PyTorch, TensorFlow, JAX, or CuPy is installed, runs a small computation on
    the GPU. If mlw builds the environments, tests the newest one. Installs and downloads nothing. Exits with 75 if a
    step fails.
    """
    here, paths = the_project(folder), user_paths()
    compute = here.compute(target)
    host = open_target(compute, paths).host
    facts = host.facts()
    contained = type_of(compute).contained
    request = {
        "do": "gpu doctor",
        "python": None if contained else _python(here, compute, paths),
        "container": _container(compute, facts) if contained else None,
        "managed": is_managed(compute),
    }
    reply = Reply(host.identity, host.ask(request, patience=_PATIENCE)).require_ok(
        f"{host.identity} could not test its GPUs"
    )
    findings = judge_gpus(reply.mapping("found"), facts, compute)
    show_findings(findings, output, query)
    return 0 if is_fit(findings) else LaunchError.exit_code


def _python(here: Project, compute: Compute, paths: UserPaths) -> str | None:
    """The one that runs scripts; a machine elsewhere looks for it by its name."""
    if not is_local_process(compute):
        return compute.python_location or "python3"
    try:
        return find_python(compute.python_location, os.environ, here.root, paths.interpreters).path
    except ConfigError as error:
        render.warn(error.message)  # the rest of the way can be tried without it
        return None


def _container(compute: Compute, facts: Facts) -> dict[str, object]:
    """What to try; nothing where no engine is fit, which the findings say."""
    try:
        engine = choose_engine(facts, compute)
    except LaunchError:
        return {}
    image = compute.base_docker_image or DEFAULT_IMAGE
    return {**probe(engine, facts.user.uid or 0, facts.user.gid or 0, image), "gpus": ["all"]}
