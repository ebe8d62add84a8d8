"""Diagnose the path from a script to the GPU, using collected facts, without side effects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..hosts.gpu_values import Gpus
from ..hosts.host_facts import Engine, Facts
from ..model import Compute
from ..remote.shared import gpu_problems
from .machine_check import ERROR, OK, WARNING, Finding

_MAX_LENGTH = 300
_NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "cupy": "CuPy", "cuda": "CUDA"}
_TOOLKIT = (
    "install the NVIDIA Container Toolkit on the target, run 'sudo nvidia-ctk runtime configure', and restart the"
    " engine"
)

_IN_CONTAINER = "no-gpu-in-container"

_HUNG = "look for NVRM: Xid in the output of 'sudo dmesg' on the target; a reboot recovers a hung driver"
_LOAD = "load the driver on the target (sudo modprobe nvidia), or install it; 'sudo dmesg' shows why it was not loaded"

_REBOOT = "reboot the target; if it happens again, check the power, cooling, and seating of the card"
_REMEDIES = {
    gpu_problems.MISMATCH: "reboot the target to load the new driver",
    gpu_problems.NOT_LOADED: _LOAD,
    gpu_problems.NO_DRIVER: "install the NVIDIA driver on the target with the system package manager",
    gpu_problems.NO_LIBRARY: (
        "install the user-space libraries of the NVIDIA driver; if the target is a container, start it with --gpus all"
    ),
    gpu_problems.LOST: _REBOOT,
    gpu_problems.NEEDS_RESET: "run 'sudo nvidia-smi --gpu-reset', or reboot the target",
    gpu_problems.NO_RESPONSE: _HUNG,
}


def remedy(code: str | None) -> str | None:
    """Return the remedy for a problem that the target reported."""
    return _REMEDIES.get(code or "")


def gpu_findings(probe: Mapping[str, Any], facts: Facts, compute: Compute) -> list[Finding]:
    """Return the findings of each step. Stop after the first failure, because later steps would fail, too."""
    gpus = Gpus.from_json(probe.get("gpus"))
    findings = [_driver(probe, gpus)]
    if findings[-1].state != ERROR:
        findings += _nvml(probe, gpus)
    if any(finding.state == ERROR for finding in findings):
        return findings
    inside = probe.get("container")
    if isinstance(inside, Mapping):
        findings += _engine(facts, probe, compute)
        if all(finding.state != ERROR for finding in findings):
            findings += _container(inside, gpus, compute)
        return findings
    return [*findings, *_tried(probe.get("tried"), gpus, "the Python that runs scripts")]


def _driver(probe: Mapping[str, Any], gpus: Gpus) -> Finding:
    version = gpus.driver or _text(probe.get("driver"))
    if version:
        return Finding(
            "driver", OK, f"NVIDIA driver {version}" + (f", supports CUDA up to {gpus.cuda}" if gpus.cuda else "")
        )
    if gpus.problem:
        return Finding("driver", ERROR, gpus.problem, remedy(gpus.problem_code) or _LOAD)
    if probe.get("cards"):
        found = "an NVIDIA card is installed, but there is no driver for it"
        return Finding("driver", ERROR, found, remedy(gpu_problems.NO_DRIVER))
    hint = "use a machine with an NVIDIA GPU; if this is a container, start it with --gpus all"
    return Finding("driver", ERROR, "no NVIDIA GPU or driver found", hint)


def _nvml(probe: Mapping[str, Any], gpus: Gpus) -> list[Finding]:
    if gpus.problem:
        return [Finding("nvml", ERROR, gpus.problem, remedy(gpus.problem_code) or "run: nvidia-smi")]
    if not gpus.gpus:
        return [Finding("nvml", ERROR, "the driver is loaded, but finds no GPU", "run: sudo dmesg | grep -i nvrm")]
    names = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in gpus.gpus if not gpu.error)
    how = "nvidia-smi, NVML could not be loaded" if gpus.source == "nvidia-smi" else "NVML"
    findings = [Finding("nvml", OK if gpus.source == "nvml" else WARNING, f"{how}: {names or 'no GPU responds'}")]
    if findings[0].state == WARNING:
        hint = "GPU monitoring works with fewer metrics; install a Python with ctypes on the target to read NVML"
        findings = [Finding("nvml", WARNING, findings[0].found, hint)]
    for gpu in gpus.gpus:
        if gpu.error:
            findings.append(Finding(f"gpu {gpu.index}", ERROR, gpu.error, remedy(gpu.error_code) or _REBOOT))
    devices = probe.get("devices")
    shut = [path for path, free in devices.items() if free is False] if isinstance(devices, Mapping) else []
    if shut:
        hint = "allow your user to access it: sudo usermod -aG video $USER (or its group: ls -l), then log in again"
        findings.append(
            Finding("devices", ERROR, f"your user has no access to {', '.join(map(str, sorted(shut)[:4]))}", hint)
        )
    return findings


def _engine(facts: Facts, probe: Mapping[str, Any], compute: Compute) -> list[Finding]:
    engine = facts.docker or facts.podman
    if engine is None or engine.error:
        what = engine.error if engine else "neither docker nor podman is installed"
        return [Finding("toolkit", ERROR, str(what), f"run: mlw computetarget check {compute.name}")]
    toolkit = probe.get("toolkit")
    version = _text(toolkit.get("version")) if isinstance(toolkit, Mapping) else None
    if not engine.nvidia:
        return [Finding("toolkit", ERROR, f"{_called(engine)} has no support for NVIDIA GPUs", _TOOLKIT, _IN_CONTAINER)]
    return [
        Finding("toolkit", OK, f"{_called(engine)} can pass GPUs to containers" + (f" ({version})" if version else ""))
    ]


def _called(engine: Engine) -> str:
    return f"{engine.program} {engine.version}"


def _container(inside: Mapping[str, Any], gpus: Gpus, compute: Compute) -> list[Finding]:
    image = _text(inside.get("image"))
    if inside.get("missing"):
        hint = "submit a run to pull the image, then test again"
        return [Finding("container", WARNING, f"image {image} is not on the target, so it was not tested", hint)]
    if inside.get("code") != 0:
        last_line = (_text(inside.get("said")) or "no output").strip().splitlines()[-1]
        return [
            Finding("container", ERROR, f"a container with GPUs fails to start: {last_line}", _TOOLKIT, _IN_CONTAINER)
        ]
    devices = inside.get("devices")
    if not devices:
        return [Finding("container", ERROR, "a container that requests GPUs gets none", _TOOLKIT, _IN_CONTAINER)]
    count = len(devices) if isinstance(devices, list) else 0
    findings = [Finding("container", OK, f"{image} sees {count} of {len(gpus.gpus)} GPU{'s' * (len(gpus.gpus) != 1)}")]
    if not compute.nvidia_docker:
        hint = f"set nvidiaDocker: true in {compute.name}.compute, or submit with --gpus"
        findings.append(Finding("nvidiaDocker", WARNING, f"{compute.name}.compute does not request GPUs", hint))
    return [*findings, *_tried(inside.get("tried"), gpus, "the image's Python")]


def _tried(tried: object, gpus: Gpus, whose: str) -> list[Finding]:
    rows = [row for row in tried if isinstance(row, Mapping)] if isinstance(tried, list) else []
    findings = [_framework_finding(row, gpus) for row in rows]
    if not any(row.get("what") != "cuda" for row in rows):
        hint = "checked: PyTorch, TensorFlow, JAX, and CuPy; the environment of a project may add them later"
        findings.append(Finding("framework", OK, f"{whose} has no framework to test", hint))
    return findings


def _framework_finding(tried: Mapping[str, Any], gpus: Gpus) -> Finding:
    what = str(tried.get("what"))
    name = _NAMES.get(what, _text(what) or "?")
    version, cuda = _text(tried.get("version")), _text(tried.get("cuda"))
    title = " ".join(part for part in (name, version) if part) + (f", built for CUDA {cuda}" if cuda else "")
    link = "cuda" if what == "cuda" else "framework"
    error = _text(tried.get("error"))
    if error:
        return Finding(link, ERROR, f"{title}: {error}", _why(error, what))
    if tried.get("worked") is True:
        return Finding(link, OK, f"{title}: a small computation on the GPU succeeded")
    if what == "torch" and not cuda:
        hint = "this is a CPU-only build: use torch without +cpu ('mlw project doctor' suggests one)"
        return Finding(link, ERROR, f"{title} was built without CUDA", hint, "gpu-cpu-build")
    if _newer(cuda, gpus.cuda):
        hint = f"update the driver on the target, or use a build for CUDA {gpus.cuda} or older"
        probe = f"{title} needs a newer driver: this one supports CUDA {gpus.cuda}"
        return Finding(link, ERROR, probe, hint, "gpu-driver")
    return Finding(
        link,
        ERROR,
        f"{title} sees no GPU",
        "check CUDA_VISIBLE_DEVICES on the target, and that the framework is a GPU build",
    )


def _why(error: str, what: str) -> str:
    lowered = error.lower()
    if "libcuda" in lowered:
        return (
            "libcuda.so.1 of the driver not found: install the user-space driver libraries; for containers, the toolkit"
        )
    if "insufficient" in lowered or "too old" in lowered:
        return "update the driver on the target, or use a build for an older CUDA"
    if "out of memory" in lowered:
        return "other processes use the GPU memory; list them with 'mlw gpus'"
    if "kernel image" in lowered:
        return "this build does not support that GPU: use a newer build for a new GPU, or an older one for an old GPU"
    return "reinstall it for this machine" if what != "cuda" else "run: sudo dmesg | grep -i nvrm"


def _newer(needed: str | None, served: str | None) -> bool:
    """Return whether the needed CUDA major version is higher than the available one."""
    try:
        return int((needed or "0").split(".")[0]) > int((served or "").split(".")[0])
    except ValueError:
        return False


def _text(value: object) -> str | None:
    return value[:_MAX_LENGTH] if isinstance(value, str) else None
