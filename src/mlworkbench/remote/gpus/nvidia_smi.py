"""Query GPUs with ``nvidia-smi -q -x``, for a Python that cannot load NVML.

This is slow, so use it for rare queries only.
"""

from __future__ import annotations

import os
import subprocess

from ..shared import gpu_problems
from ..shared.program_lookup import safe_path
from . import empty_gpu

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

_TIMED_OUT = -1000  # in place of an exit code
TIMEOUT = 20.0  # seconds; without the persistence daemon, each call initializes the driver
_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/opt/bin")
# Messages of nvidia-smi.
_MESSAGES = (
    ("version mismatch", gpu_problems.MISMATCH),
    ("couldn't communicate", gpu_problems.NOT_LOADED),
    ("libnvidia-ml", gpu_problems.NO_LIBRARY),
)
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def query_gpus() -> Optional[Dict[str, Any]]:
    """Return the same data as ``gpu_inventory.query_gpus``; None if nvidia-smi is not installed."""
    program = find_nvidia_smi()
    if program is None:
        return None
    code, output = _run_command([program, "-q", "-x"])
    if code == 0:
        try:
            return _add_capabilities(program, parse_xml(output))
        except ValueError as error:
            output = "unexpected output: %s" % error
    first = (output.strip().splitlines() or ["exit code %s" % code])[0]
    problem = gpu_problems.NO_RESPONSE if code == _TIMED_OUT else _classify(output)
    return {
        "driver": None,
        "cuda": None,
        "source": None,
        "problem": "nvidia-smi: %s" % first,
        "problem_code": problem,
        "gpus": [],
    }


def _classify(output: str) -> str:
    return next((problem for message, problem in _MESSAGES if message in output), gpu_problems.UNKNOWN)


def _add_capabilities(program: str, inventory: Dict[str, Any]) -> Dict[str, Any]:
    """Add the compute capabilities, which the XML output lacks. Drivers before 470 do not report them."""
    code, output = _run_command([program, "--query-gpu=uuid,compute_cap", "--format=csv,noheader"])
    capabilities = dict(line.split(", ", 1) for line in output.splitlines() if ", " in line) if code == 0 else {}
    for gpu in inventory["gpus"]:
        gpu["capability"] = capabilities.get(gpu["uuid"])
    return inventory


def find_nvidia_smi() -> Optional[str]:
    for folder in safe_path().split(os.pathsep) + list(_FOLDERS):
        path = os.path.join(folder, "nvidia-smi")
        if folder and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def _run_command(arguments: List[str]) -> "tuple[Optional[int], str]":
    try:
        process = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        return _TIMED_OUT, "it did not respond in time"
    except OSError as error:
        return None, str(error.strerror)
    return process.returncode, process.stdout.decode("utf-8", "replace")


def parse_xml(text: str) -> Dict[str, Any]:
    """Parse the XML output. Raise ValueError if it is not valid XML."""
    from xml.etree import ElementTree  # noqa: PLC0415 - large, and rarely needed

    try:
        top = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None
    return {
        "driver": _text(top, "driver_version"),
        "cuda": _text(top, "cuda_version"),
        "source": "nvidia-smi",
        "problem": None,
        "problem_code": None,
        "gpus": [_parse_gpu(index, node) for index, node in enumerate(top.findall("gpu"))],
    }


def _parse_gpu(index: int, node: Any) -> Dict[str, Any]:
    gpu = empty_gpu(index)
    uuid = _text(node, "uuid")
    gpu["bus_id"] = node.get("id")
    if uuid is None or not uuid.startswith("GPU-"):
        gpu.update(error="it does not respond (%s)" % (uuid or "no UUID"), error_code=gpu_problems.LOST)
        return gpu
    gpu.update(
        uuid=uuid,
        name=_text(node, "product_name"),
        memory_total=_bytes(node, "fb_memory_usage/total"),
        memory_used=_bytes(node, "fb_memory_usage/used"),
        memory_free=_bytes(node, "fb_memory_usage/free"),
        utilisation=_integer(node, "utilization/gpu_util"),
        temperature=_integer(node, "temperature/gpu_temp"),
        power=_first_number(node, "gpu_power_readings/instant_power_draw", "gpu_power_readings/power_draw", *_OLD_DRAW),
        power_limit=_first_number(node, "gpu_power_readings/current_power_limit", *_OLD_LIMIT),
        memory_clock=_integer(node, "max_clocks/mem_clock"),
        mig=[_parse_mig_device(device) for device in node.findall("mig_devices/mig_device")],
        processes=_parse_processes(node),
    )
    return gpu


_OLD_DRAW = ("gpu_power_readings/average_power_draw", "power_readings/power_draw")
_OLD_LIMIT = ("power_readings/enforced_power_limit", "power_readings/power_limit")


def _parse_mig_device(node: Any) -> Dict[str, Any]:
    total = _bytes(node, "fb_memory_usage/total")
    return {
        "uuid": _text(node, "uuid"),
        "name": None,
        "memory_total": total,
        "memory_used": _bytes(node, "fb_memory_usage/used"),
    }


def _parse_processes(node: Any) -> List[Dict[str, Any]]:
    processes = []
    for process in node.findall("processes/process_info"):
        pid = _integer(process, "pid")
        if pid is not None:
            kind = "compute" if "C" in (_text(process, "type") or "") else "graphics"
            processes.append({"pid": pid, "memory": _bytes(process, "used_memory"), "kind": kind})
    return processes


def _text(node: Any, path: str) -> Optional[str]:
    """Return the text of an element; None for any notation that nvidia-smi uses for unknown values."""
    text = (node.findtext(path) or "").strip()
    return None if not text or text in ("N/A", "[N/A]", "Unknown Error") or "Not " in text else text


def _number(node: Any, path: str) -> Optional[float]:
    parts = (_text(node, path) or "").split()
    try:
        return float(parts[0])
    except (IndexError, ValueError):
        return None


def _first_number(node: Any, *paths: str) -> Optional[float]:
    return next((value for value in (_number(node, path) for path in paths) if value is not None), None)


def _integer(node: Any, path: str) -> Optional[int]:
    value = _number(node, path)
    return None if value is None else int(value)


def _bytes(node: Any, path: str) -> Optional[int]:
    value = _number(node, path)
    parts = (_text(node, path) or "").split()
    return None if value is None else int(value * _UNITS.get(parts[-1], 1))
