"""What speaks for or against the use of a GPU: packages, variables, the log. Reads files only; nothing is imported."""

from __future__ import annotations

import os
import re

from .signs import read_signs

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional

    from ..run_spec import Spec

    Facts = Dict[str, Any]

_PART = 256 * 1024  # bytes of the log's beginning and end
_TORCH = re.compile(r"^cuda\b[^=]*=\s*(?:'([^']*)'|\"([^\"]*)\"|None)", re.MULTILINE)
_TENSORFLOW = re.compile(r"[\"']is_cuda_build[\"']\s*[:,]\s*(True|False)")
_TENSORFLOW_CUDA = re.compile(r"[\"']cuda_version[\"']\s*[:,]\s*[\"']([\d.]+)[\"']")
_LOCAL = re.compile(r"\+cu(?:da)?(\d{2,3})")


def gather(spec: Spec, log: str, environment: Dict[str, str], packages: Optional[Facts]) -> Facts:
    """``environment``: of the script; ``packages``: what ``frameworks_of`` found."""
    container = spec.get("container")
    return {
        "visible": environment.get("CUDA_VISIBLE_DEVICES"),
        "container": bool(container),
        "container_gpus": (container or {}).get("gpus"),
        "frameworks": packages,
        "python": None if (spec.get("lock") or {}).get("kind") == "managed" else spec["commands"][-1]["argv"][0],
        "signs": read_signs(read_log(log)),
    }


def read_log(path: str) -> str:
    """Its beginning, where frameworks complain, and its end."""
    try:
        with open(path, "rb") as file:
            first = file.read(_PART)
            file.seek(0, os.SEEK_END)
            file.seek(max(len(first), file.tell() - _PART))
            return (first + b"\n" + file.read(_PART)).decode("utf-8", "replace")
    except OSError:
        return ""


def frameworks_of(spec: Spec, environment: Dict[str, str], root: str = "") -> Optional[Facts]:
    """What of the script's packages can use a GPU; None if that cannot be seen.

    ``root``: where a container's files are seen from here. What it mounts from us is where it is.
    """
    python = find_program(spec["commands"][-1]["argv"][0], environment, root)
    folders = list(package_folders(python, environment, root))
    return frameworks(folders) if folders else None


# -- packages ----------------------------------------------------------------------------------------------


def find_program(name: str, environment: Dict[str, str], root: str = "") -> Optional[str]:
    """The path of what was started."""
    if os.path.isabs(name):
        return name
    for folder in environment.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":"):
        if folder and os.access(os.path.join(root + folder, name), os.X_OK):
            return os.path.join(folder, name)
    return None


def package_folders(python: Optional[str], environment: Dict[str, str], root: str = "") -> Iterator[str]:
    """Where the packages of an interpreter are. Nothing if it is none."""
    if python is None or not os.path.basename(python).startswith("python"):
        return
    prefixes = [os.path.dirname(os.path.dirname(python))]
    real = os.path.realpath(root + python)
    if not os.path.exists(os.path.join(root + prefixes[0], "pyvenv.cfg")):  # else the interpreter's own do not count
        prefixes += [os.path.dirname(os.path.dirname(real))] if not root else []
        prefixes += ["/usr/local"] if prefixes[0] == "/usr" else []
        prefixes += [os.path.join(environment["HOME"], ".local")] if environment.get("HOME") else []
    seen = set()
    for prefix in prefixes:
        for lib in ("lib", "lib64"):
            for folder in _below(os.path.join(root + prefix, lib)):
                place = os.path.realpath(folder)
                if place not in seen:
                    seen.add(place)
                    yield folder


def _below(lib: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(lib))
    except OSError:
        return
    for name in names:
        for kind in ("site-packages", "dist-packages"):
            folder = os.path.join(lib, name, kind)
            if name.startswith("python") and os.path.isdir(folder):
                yield folder


def frameworks(folders: List[str]) -> Facts:
    """Name → version, whether it can use a GPU (None: not known), and the CUDA that it was built for."""
    found: Facts = {}
    for folder in folders:
        packages = installed(folder)
        for name, facts in _judged(folder, packages).items():
            found.setdefault(name, facts)
    return found


def installed(folder: str) -> Dict[str, str]:
    """Name → version, from the names of the metadata folders."""
    found = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    for name in names:
        stem, dot, kind = name.rpartition(".")
        if kind in ("dist-info", "egg-info") and "-" in stem:
            package, _, version = stem.partition("-")
            found[package.lower().replace("_", "-")] = version.partition("-py")[0]
    return found


def _judged(folder: str, packages: Dict[str, str]) -> Facts:
    found: Facts = {}
    if "torch" in packages:
        found["torch"] = _torch(folder, packages["torch"])
    tensorflow = next((name for name in ("tensorflow", "tensorflow-gpu", "tensorflow-cpu") if name in packages), None)
    if tensorflow:
        found["tensorflow"] = _tensorflow(folder, tensorflow, packages[tensorflow])
    if "jaxlib" in packages:
        found["jax"] = _jax(packages)
    for name in ("cntk", "onnxruntime", "paddlepaddle", "mxnet"):
        wide = next((one for one in packages if one.startswith((name + "-gpu", name + "-cu"))), None)
        if wide or name in packages:
            found[name] = {"version": packages[wide or name], "gpu": bool(wide), "cuda": None}
    for name in packages:
        if name == "cupy" or name.startswith("cupy-cuda") or name in ("cudf-cu12", "cuml-cu12", "numba-cuda"):
            found[name] = {"version": packages[name], "gpu": True, "cuda": None}
    return found


def _torch(folder: str, version: str) -> Facts:
    told = _TORCH.search(_text(os.path.join(folder, "torch", "version.py")))
    if told:
        cuda = told.group(1) or told.group(2)
        return {"version": version, "gpu": bool(cuda), "cuda": cuda}
    if "+cpu" in version:
        return {"version": version, "gpu": False, "cuda": None}
    local = _LOCAL.search(version)
    return {"version": version, "gpu": True if local else None, "cuda": _dotted(local.group(1)) if local else None}


def _tensorflow(folder: str, name: str, version: str) -> Facts:
    text = _text(os.path.join(folder, "tensorflow", "python", "platform", "build_info.py"))
    told, cuda = _TENSORFLOW.search(text), _TENSORFLOW_CUDA.search(text)
    if told:
        able = told.group(1) == "True"
        return {"version": version, "gpu": able, "cuda": cuda.group(1) if able and cuda else None}
    able_by_name = {"tensorflow-gpu": True, "tensorflow-cpu": False}.get(name)
    return {"version": version, "gpu": able_by_name, "cuda": None}


def _jax(packages: Dict[str, str]) -> Facts:
    version = packages.get("jax") or packages["jaxlib"]
    plugin = next((name for name in packages if re.match(r"jax-cuda\d+-(plugin|pjrt)\Z", name)), None)
    old = re.search(r"\+cuda(\d+)", packages["jaxlib"])
    cuda = re.sub(r"\D", "", plugin) if plugin else _dotted(old.group(1)) if old else None
    return {"version": version, "gpu": bool(cuda), "cuda": cuda}


def _dotted(digits: str) -> str:
    """118 is 11.8, 92 is 9.2, 12 is 12."""
    if len(digits) == 3:
        return digits[:2] + "." + digits[2]
    return digits if digits.startswith("1") else digits[0] + "." + digits[1:]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
