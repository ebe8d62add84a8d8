"""What was found on the way from a script to the GPU → what is well, what is not, the remedy. Pure: asks nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..hosts.facts import Engine, Facts
from ..hosts.gpus import Gpus
from ..model import Compute
from .check import ERROR, OK, WARNING, Finding

_LONGEST = 300
_NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "cupy": "CuPy", "cuda": "CUDA"}
_TOOLKIT = (
    "install the NVIDIA Container Toolkit on the target, run 'sudo nvidia-ctk runtime configure', and restart the"
    " engine"
)

_IN_CONTAINER = "no-gpu-in-container"

_HUNG = "look for NVRM: Xid in the output of 'sudo dmesg' on the target; a reboot recovers a hung driver"
_LOAD = "load the driver on the target (sudo modprobe nvidia), or install it; 'sudo dmesg' shows why it was not loaded"

# What the driver's troubles call for; the first that fits counts.
_REMEDIES = (
    ("version mismatch", "reboot the target to load the new driver"),
    ("not loaded", _LOAD),
    ("couldn't communicate", _LOAD),
    ("no driver for it", "install the NVIDIA driver on the target with the system package manager"),
    (
        "libnvidia-ml",
        "install the user-space libraries of the NVIDIA driver; if the target is a container, start it with --gpus all",
    ),
    (
        "fallen off the bus",
        "reboot the target; if it happens again, check the power, cooling, and seating of the card",
    ),
    ("must be reset", "run 'sudo nvidia-smi --gpu-reset', or reboot the target"),
    ("did not answer", _HUNG),
    ("did not respond", _HUNG),
)


def remedy(problem: str) -> str | None:
    """For what NVML or nvidia-smi complained of."""
    return next((hint for sign, hint in _REMEDIES if sign in problem), None)


def judge_gpus(found: Mapping[str, Any], facts: Facts, compute: Compute) -> list[Finding]:
    """Link by link, up to the first that is broken: what hangs on it cannot be better."""
    gpus = Gpus.from_json(found.get("gpus"))
    findings = [_driver(found, gpus)]
    if findings[-1].state != ERROR:
        findings += _nvml(found, gpus)
    if any(one.state == ERROR for one in findings):
        return findings
    inside = found.get("container")
    if isinstance(inside, Mapping):
        findings += _engine(facts, found, compute)
        if all(one.state != ERROR for one in findings):
            findings += _container(inside, gpus, compute)
        return findings
    return [*findings, *_tried(found.get("tried"), gpus, "the Python that runs scripts")]


def _driver(found: Mapping[str, Any], gpus: Gpus) -> Finding:
    version = gpus.driver or _text(found.get("driver"))
    if version:
        return Finding(
            "driver", OK, f"NVIDIA driver {version}" + (f", supports CUDA up to {gpus.cuda}" if gpus.cuda else "")
        )
    if gpus.problem:
        return Finding("driver", ERROR, gpus.problem, remedy(gpus.problem) or _REMEDIES[1][1])
    if found.get("cards"):
        return Finding("driver", ERROR, "an NVIDIA card is installed, but there is no driver for it", _REMEDIES[3][1])
    hint = "use a machine with an NVIDIA GPU; if this is a container, start it with --gpus all"
    return Finding("driver", ERROR, "no NVIDIA GPU or driver found", hint)


def _nvml(found: Mapping[str, Any], gpus: Gpus) -> list[Finding]:
    if gpus.problem:
        return [Finding("nvml", ERROR, gpus.problem, remedy(gpus.problem) or "run: nvidia-smi")]
    if not gpus.gpus:
        return [Finding("nvml", ERROR, "the driver is loaded, but finds no GPU", "run: sudo dmesg | grep -i nvrm")]
    names = ", ".join(f"{one.index}: {one.name}" for one in gpus.gpus if not one.error)
    how = "nvidia-smi, NVML could not be loaded" if gpus.source == "nvidia-smi" else "NVML"
    findings = [Finding("nvml", OK if gpus.source == "nvml" else WARNING, f"{how}: {names or 'no GPU responds'}")]
    if findings[0].state == WARNING:
        hint = "GPU monitoring works with fewer metrics; install a Python with ctypes on the target to read NVML"
        findings = [Finding("nvml", WARNING, findings[0].found, hint)]
    for one in gpus.gpus:
        if one.error:
            findings.append(Finding(f"gpu {one.index}", ERROR, one.error, remedy(one.error) or _REMEDIES[5][1]))
    devices = found.get("devices")
    shut = [path for path, free in devices.items() if free is False] if isinstance(devices, Mapping) else []
    if shut:
        hint = "allow your user to access it: sudo usermod -aG video $USER (or its group: ls -l), then log in again"
        findings.append(
            Finding("devices", ERROR, f"your user has no access to {', '.join(map(str, sorted(shut)[:4]))}", hint)
        )
    return findings


def _engine(facts: Facts, found: Mapping[str, Any], compute: Compute) -> list[Finding]:
    engine = facts.docker or facts.podman
    if engine is None or engine.error:
        what = engine.error if engine else "neither docker nor podman is installed"
        return [Finding("toolkit", ERROR, str(what), f"run: mlw computetarget check {compute.name}")]
    toolkit = found.get("toolkit")
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
        said = (_text(inside.get("said")) or "no output").strip().splitlines()[-1]
        return [Finding("container", ERROR, f"a container with GPUs fails to start: {said}", _TOOLKIT, _IN_CONTAINER)]
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
    rows = [one for one in tried if isinstance(one, Mapping)] if isinstance(tried, list) else []
    findings = [_one(one, gpus) for one in rows]
    if not any(one.get("what") != "cuda" for one in rows):
        hint = "checked: PyTorch, TensorFlow, JAX, and CuPy; the environment of a project may add them later"
        findings.append(Finding("framework", OK, f"{whose} has no framework to test", hint))
    return findings


def _one(tried: Mapping[str, Any], gpus: Gpus) -> Finding:
    what = str(tried.get("what"))
    name = _NAMES.get(what, _text(what) or "?")
    version, cuda = _text(tried.get("version")), _text(tried.get("cuda"))
    title = " ".join(one for one in (name, version) if one) + (f", built for CUDA {cuda}" if cuda else "")
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
        found = f"{title} needs a newer driver: this one supports CUDA {gpus.cuda}"
        return Finding(link, ERROR, found, hint, "gpu-driver")
    return Finding(
        link,
        ERROR,
        f"{title} sees no GPU",
        "check CUDA_VISIBLE_DEVICES on the target, and that the framework is a GPU build",
    )


def _why(error: str, what: str) -> str:
    said = error.lower()
    if "libcuda" in said:
        return (
            "libcuda.so.1 of the driver not found: install the user-space driver libraries; for containers, the toolkit"
        )
    if "insufficient" in said or "too old" in said:
        return "update the driver on the target, or use a build for an older CUDA"
    if "out of memory" in said:
        return "other processes use the GPU memory; list them with 'mlw gpus'"
    if "kernel image" in said:
        return "this build does not support that GPU: use a newer build for a new GPU, or an older one for an old GPU"
    return "reinstall it for this machine" if what != "cuda" else "run: sudo dmesg | grep -i nvrm"


def _newer(wanted: str | None, served: str | None) -> bool:
    """Within one major version CUDA is compatible."""
    try:
        return int((wanted or "0").split(".")[0]) > int((served or "").split(".")[0])
    except ValueError:
        return False


def _text(value: object) -> str | None:
    return value[:_LONGEST] if isinstance(value, str) else None
