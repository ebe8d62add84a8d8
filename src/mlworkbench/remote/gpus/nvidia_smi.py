"""The same from ``nvidia-smi -q -x``, for a Python that cannot load NVML. Slow, so for rare looks only."""

from __future__ import annotations

import os
import subprocess

from ..shared.programs import safe_path
from . import empty

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

PATIENCE = 20.0  # without a persistence daemon, each call wakes the driver up
_PLACES = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/opt/bin")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def look() -> Optional[Dict[str, Any]]:
    """As ``inventory.look``; None if there is no nvidia-smi."""
    program = find()
    if program is None:
        return None
    code, said = _call([program, "-q", "-x"])
    if code == 0:
        try:
            return _with_capabilities(program, parse(said))
        except ValueError as error:
            said = "unexpected output: %s" % error
    first = (said.strip().splitlines() or ["exit code %s" % code])[0]
    return {"driver": None, "cuda": None, "source": None, "problem": "nvidia-smi: %s" % first, "gpus": []}


def _with_capabilities(program: str, found: Dict[str, Any]) -> Dict[str, Any]:
    """The one thing that the long answer leaves out; drivers before 470 do not tell it at all."""
    code, said = _call([program, "--query-gpu=uuid,compute_cap", "--format=csv,noheader"])
    known = dict(line.split(", ", 1) for line in said.splitlines() if ", " in line) if code == 0 else {}
    for gpu in found["gpus"]:
        gpu["capability"] = known.get(gpu["uuid"])
    return found


def find() -> Optional[str]:
    for folder in safe_path().split(os.pathsep) + list(_PLACES):
        path = os.path.join(folder, "nvidia-smi")
        if folder and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def _call(words: List[str]) -> "tuple[Optional[int], str]":
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return None, "it did not respond in time"
    except OSError as error:
        return None, str(error.strerror)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def parse(text: str) -> Dict[str, Any]:
    """ValueError if that is not what nvidia-smi says."""
    from xml.etree import ElementTree  # noqa: PLC0415 - megabytes, and NVML is the rule

    try:
        top = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None
    return {
        "driver": _words(top, "driver_version"),
        "cuda": _words(top, "cuda_version"),
        "source": "nvidia-smi",
        "problem": None,
        "gpus": [_gpu(index, one) for index, one in enumerate(top.findall("gpu"))],
    }


def _gpu(index: int, node: Any) -> Dict[str, Any]:
    gpu = empty(index)
    uuid = _words(node, "uuid")
    gpu["bus_id"] = node.get("id")
    if uuid is None or not uuid.startswith("GPU-"):
        gpu["error"] = "it does not respond (%s)" % (uuid or "no UUID")
        return gpu
    gpu.update(
        uuid=uuid,
        name=_words(node, "product_name"),
        memory_total=_bytes(node, "fb_memory_usage/total"),
        memory_used=_bytes(node, "fb_memory_usage/used"),
        memory_free=_bytes(node, "fb_memory_usage/free"),
        utilisation=_whole(node, "utilization/gpu_util"),
        temperature=_whole(node, "temperature/gpu_temp"),
        power=_first(node, "gpu_power_readings/instant_power_draw", "gpu_power_readings/power_draw", *_OLD_DRAW),
        power_limit=_first(node, "gpu_power_readings/current_power_limit", *_OLD_LIMIT),
        memory_clock=_whole(node, "max_clocks/mem_clock"),
        mig=[_slice(one) for one in node.findall("mig_devices/mig_device")],
        processes=_processes(node),
    )
    return gpu


_OLD_DRAW = ("gpu_power_readings/average_power_draw", "power_readings/power_draw")
_OLD_LIMIT = ("power_readings/enforced_power_limit", "power_readings/power_limit")


def _slice(node: Any) -> Dict[str, Any]:
    total = _bytes(node, "fb_memory_usage/total")
    return {
        "uuid": _words(node, "uuid"),
        "name": None,
        "memory_total": total,
        "memory_used": _bytes(node, "fb_memory_usage/used"),
    }


def _processes(node: Any) -> List[Dict[str, Any]]:
    found = []
    for one in node.findall("processes/process_info"):
        pid = _whole(one, "pid")
        if pid is not None:
            kind = "compute" if "C" in (_words(one, "type") or "") else "graphics"
            found.append({"pid": pid, "memory": _bytes(one, "used_memory"), "kind": kind})
    return found


def _words(node: Any, path: str) -> Optional[str]:
    """What stands there; None for its ways to say that it does not know."""
    text = (node.findtext(path) or "").strip()
    return None if not text or text in ("N/A", "[N/A]", "Unknown Error") or "Not " in text else text


def _number(node: Any, path: str) -> Optional[float]:
    words = (_words(node, path) or "").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return None


def _first(node: Any, *paths: str) -> Optional[float]:
    return next((value for value in (_number(node, path) for path in paths) if value is not None), None)


def _whole(node: Any, path: str) -> Optional[int]:
    value = _number(node, path)
    return None if value is None else int(value)


def _bytes(node: Any, path: str) -> Optional[int]:
    value = _number(node, path)
    words = (_words(node, path) or "").split()
    return None if value is None else int(value * _UNITS.get(words[-1], 1))
