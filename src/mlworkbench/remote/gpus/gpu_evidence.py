"""Collect evidence about GPU use: packages, environment variables, and the log.

Only files are read. No package is imported.
"""

from __future__ import annotations

import os
import re

from .log_patterns import find_log_patterns

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional

    from ..run_spec import Spec

    Facts = Dict[str, Any]

_LOG_PART = 256 * 1024  # bytes that are read from the start and from the end of the log
_TORCH_CUDA = re.compile(r"^cuda\b[^=]*=\s*(?:'([^']*)'|\"([^\"]*)\"|None)", re.MULTILINE)
_TENSORFLOW_BUILD = re.compile(r"[\"']is_cuda_build[\"']\s*[:,]\s*(True|False)")
_TENSORFLOW_CUDA = re.compile(r"[\"']cuda_version[\"']\s*[:,]\s*[\"']([\d.]+)[\"']")
_LOCAL_VERSION = re.compile(r"\+cu(?:da)?(\d{2,3})")


def gather_evidence(spec: Spec, log: str, environment: Dict[str, str], packages: Optional[Facts]) -> Facts:
    """Return the evidence for a run.

    ``environment`` contains the variables of the script; ``packages`` is the result of
    ``find_frameworks``.
    """
    container = spec.get("container")
    return {
        "visible": environment.get("CUDA_VISIBLE_DEVICES"),
        "container": bool(container),
        "container_gpus": (container or {}).get("gpus"),
        "frameworks": packages,
        "python": None if (spec.get("lock") or {}).get("kind") == "managed" else spec["commands"][-1]["argv"][0],
        "signs": find_log_patterns(read_log(log)),
    }


def read_log(path: str) -> str:
    """Return the start of the log, where frameworks print warnings, and its end."""
    try:
        with open(path, "rb") as file:
            first = file.read(_LOG_PART)
            file.seek(0, os.SEEK_END)
            file.seek(max(len(first), file.tell() - _LOG_PART))
            return (first + b"\n" + file.read(_LOG_PART)).decode("utf-8", "replace")
    except OSError:
        return ""


def find_frameworks(spec: Spec, environment: Dict[str, str], root: str = "") -> Optional[Facts]:
    """Return the frameworks in the script's environment, or None if they cannot be read.

    ``root`` is the path of the container's file system on the host. Folders mounted from the host keep their paths.
    """
    python = find_program(spec["commands"][-1]["argv"][0], environment, root)
    folders = list(package_folders(python, environment, root))
    return detect_frameworks(folders) if folders else None


# -- packages ----------------------------------------------------------------------------------------------


def find_program(name: str, environment: Dict[str, str], root: str = "") -> Optional[str]:
    """Return the path of a program, found on the script's PATH if the name is relative, or None."""
    if os.path.isabs(name):
        return name
    for folder in environment.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":"):
        if folder and os.access(os.path.join(root + folder, name), os.X_OK):
            return os.path.join(folder, name)
    return None


def package_folders(python: Optional[str], environment: Dict[str, str], root: str = "") -> Iterator[str]:
    """Yield the package folders of a Python interpreter; nothing if the program is not Python."""
    if python is None or not os.path.basename(python).startswith("python"):
        return
    prefixes = [os.path.dirname(os.path.dirname(python))]
    real = os.path.realpath(root + python)
    # A virtual environment ignores the packages of its base interpreter.
    if not os.path.exists(os.path.join(root + prefixes[0], "pyvenv.cfg")):
        prefixes += [os.path.dirname(os.path.dirname(real))] if not root else []
        prefixes += ["/usr/local"] if prefixes[0] == "/usr" else []
        prefixes += [os.path.join(environment["HOME"], ".local")] if environment.get("HOME") else []
    yielded = set()
    for prefix in prefixes:
        for lib in ("lib", "lib64"):
            for folder in _site_packages(os.path.join(root + prefix, lib)):
                real_folder = os.path.realpath(folder)
                if real_folder not in yielded:
                    yielded.add(real_folder)
                    yield folder


def _site_packages(lib: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(lib))
    except OSError:
        return
    for name in names:
        for kind in ("site-packages", "dist-packages"):
            folder = os.path.join(lib, name, kind)
            if name.startswith("python") and os.path.isdir(folder):
                yield folder


def detect_frameworks(folders: List[str]) -> Facts:
    """Return version, GPU support (None if unknown), and CUDA version of each framework.

    The CUDA version is the one that the framework was built for.
    """
    result: Facts = {}
    for folder in folders:
        packages = installed_packages(folder)
        for name, facts in _detect_in_folder(folder, packages).items():
            result.setdefault(name, facts)
    return result


def installed_packages(folder: str) -> Dict[str, str]:
    """Return package versions by name, from the names of the metadata folders."""
    packages = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    for name in names:
        stem, dot, kind = name.rpartition(".")
        if kind in ("dist-info", "egg-info") and "-" in stem:
            package, _, version = stem.partition("-")
            packages[package.lower().replace("_", "-")] = version.partition("-py")[0]
    return packages


def _detect_in_folder(folder: str, packages: Dict[str, str]) -> Facts:
    result: Facts = {}
    if "torch" in packages:
        result["torch"] = _describe_torch(folder, packages["torch"])
    tensorflow = next((name for name in ("tensorflow", "tensorflow-gpu", "tensorflow-cpu") if name in packages), None)
    if tensorflow:
        result["tensorflow"] = _describe_tensorflow(folder, tensorflow, packages[tensorflow])
    if "jaxlib" in packages:
        result["jax"] = _describe_jax(packages)
    for name in ("cntk", "onnxruntime", "paddlepaddle", "mxnet"):
        gpu_package = next((package for package in packages if package.startswith((name + "-gpu", name + "-cu"))), None)
        if gpu_package or name in packages:
            result[name] = {"version": packages[gpu_package or name], "gpu": bool(gpu_package), "cuda": None}
    for name in packages:
        if name == "cupy" or name.startswith("cupy-cuda") or name in ("cudf-cu12", "cuml-cu12", "numba-cuda"):
            result[name] = {"version": packages[name], "gpu": True, "cuda": None}
    return result


def _describe_torch(folder: str, version: str) -> Facts:
    match = _TORCH_CUDA.search(_read_text(os.path.join(folder, "torch", "version.py")))
    if match:
        cuda = match.group(1) or match.group(2)
        return {"version": version, "gpu": bool(cuda), "cuda": cuda}
    if "+cpu" in version:
        return {"version": version, "gpu": False, "cuda": None}
    local = _LOCAL_VERSION.search(version)
    return {
        "version": version,
        "gpu": True if local else None,
        "cuda": _dotted_version(local.group(1)) if local else None,
    }


def _describe_tensorflow(folder: str, name: str, version: str) -> Facts:
    text = _read_text(os.path.join(folder, "tensorflow", "python", "platform", "build_info.py"))
    match, cuda = _TENSORFLOW_BUILD.search(text), _TENSORFLOW_CUDA.search(text)
    if match:
        has_gpu = match.group(1) == "True"
        return {"version": version, "gpu": has_gpu, "cuda": cuda.group(1) if has_gpu and cuda else None}
    gpu_by_name = {"tensorflow-gpu": True, "tensorflow-cpu": False}.get(name)
    return {"version": version, "gpu": gpu_by_name, "cuda": None}


def _describe_jax(packages: Dict[str, str]) -> Facts:
    version = packages.get("jax") or packages["jaxlib"]
    plugin = next((name for name in packages if re.match(r"jax-cuda\d+-(plugin|pjrt)\Z", name)), None)
    match = re.search(r"\+cuda(\d+)", packages["jaxlib"])
    cuda = re.sub(r"\D", "", plugin) if plugin else _dotted_version(match.group(1)) if match else None
    return {"version": version, "gpu": bool(cuda), "cuda": cuda}


def _dotted_version(digits: str) -> str:
    """Convert 118 to 11.8, 92 to 9.2, and 12 to 12."""
    if len(digits) == 3:
        return digits[:2] + "." + digits[2]
    return digits if digits.startswith("1") else digits[0] + "." + digits[1:]


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
