"""The Python in an image or on a remote machine.

It is used unchanged and cannot be inspected from this machine.
"""

from __future__ import annotations

from ..model import Interpreter
from ..targets.types import type_of
from .selection_request import EnvironmentRequest, ResolvedEnvironment

_DEFAULT = "python3"


def provided_python(site: EnvironmentRequest) -> ResolvedEnvironment:
    """Return the Python at ``pythonLocation``, else the default one."""
    compute = site.compute
    kind, whose = "target", "on the target"
    if type_of(compute).contained:
        kind, whose = "image", f"in image {compute.base_docker_image}"
    # Azure ML Workbench wrote `pythonLocation: python` into every project, so treat this value as the default.
    path = _DEFAULT if compute.python_location in (None, "python") else str(compute.python_location)
    return ResolvedEnvironment(
        {"kind": kind, "python": path, "version": None}, Interpreter(path, (0, 0, 0), f"{path} {whose}")
    )


given = provided_python  # name in the entry point
