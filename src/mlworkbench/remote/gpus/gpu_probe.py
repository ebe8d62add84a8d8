"""Test each step from the script to the GPU: driver, NVML, toolkit, container, and framework.

The probe reports facts, not a verdict.
"""

from __future__ import annotations

import os
import subprocess

from ..engine import Engine, probe_command
from ..environments.environment_state import list_environments
from ..launcher import encode_argument
from ..shared.environment_layout import python_of
from ..shared.layout import Root
from ..shared.program_lookup import which
from ..shared.untrusted_json import parse_json
from .gpu_inventory import find_pci_cards, parse_driver_version
from .gpu_listing import list_gpus

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Data = Dict[str, Any]

TIMEOUT = 120.0  # seconds per framework; loading one from a cold disk takes almost a minute
FRAMEWORKS = ("torch", "tensorflow", "jax", "cupy")
_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/dxg")
_MARKER = "MLW-TRIED "

# Runs with the script's Python (3.5 or newer), on the host or in a container. Its argument specifies the test. It
# allocates a little memory on the first GPU and computes with it, because a GPU that is listed may still not work.
PROBE_SCRIPT = """
import json, os, sys
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
def cuda():
    import ctypes
    lib = ctypes.CDLL("libcuda.so.1")
    def call(name, *arguments):
        code = getattr(lib, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            lib.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError("%s: %s (%d)" % (name, (text.value or b"?").decode(), code))
    version, count, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    context, memory = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuDeviceGetCount", ctypes.byref(count))
    result = {"version": "%d.%d" % (version.value // 1000, version.value % 1000 // 10), "count": count.value}
    if count.value:
        call("cuDeviceGet", ctypes.byref(device), 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call("cuCtxSetCurrent", context)
        call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 20))
        call("cuMemsetD8_v2", memory, ctypes.c_ubyte(7), ctypes.c_size_t(1 << 20))
        call("cuCtxSynchronize")
        call("cuMemFree_v2", memory)
        result["worked"] = True
    return result
def torch():
    import torch as t
    result = {"version": t.__version__, "cuda": t.version.cuda, "count": t.cuda.device_count()}
    if result["count"]:
        result["worked"] = float((t.ones(1024, device="cuda") * 2).sum()) == 2048.0
        result["name"] = t.cuda.get_device_name(0)
    return result
def tensorflow():
    import tensorflow as t
    result = {"version": t.__version__, "cuda": None, "count": len(t.config.list_physical_devices("GPU"))}
    result["cuda"] = dict(getattr(t.sysconfig, "get_build_info", dict)()).get("cuda_version")
    if result["count"]:
        with t.device("/GPU:0"):
            result["worked"] = float(t.reduce_sum(t.ones([1024]) * 2)) == 2048.0
    return result
def jax():
    import jax as j
    devices = [device for device in j.devices() if device.platform in ("gpu", "cuda")]
    result = {"version": j.__version__, "cuda": None, "count": len(devices)}
    if devices:
        result["worked"] = float((j.device_put(j.numpy.ones(1024), devices[0]) * 2).sum()) == 2048.0
        result["name"] = devices[0].device_kind
    return result
def cupy():
    import cupy as c
    result = {"version": c.__version__, "cuda": None, "count": c.cuda.runtime.getDeviceCount()}
    result["cuda"] = "%d.%d" % divmod(c.cuda.runtime.runtimeGetVersion() // 10, 100)
    if result["count"]:
        result["worked"] = float((c.ones(1024) * 2).sum()) == 2048.0
    return result
what = sys.argv[1]
if what != "cuda":
    import importlib.util
    sys.path[:] = [path for path in sys.path if path]
    if importlib.util.find_spec(what) is None:
        sys.exit(0)
try:
    result = globals()[what]()
except Exception as error:
    result = {"error": "%s: %s" % (type(error).__name__, (str(error).strip().splitlines() or [""])[0][:300])}
result["what"] = what
sys.stdout.write("\\nMLW-TRIED " + json.dumps(result) + "\\n")
"""


def probe_gpu_stack(root: Root, python: Optional[str], container: Optional[Data], managed: bool = False) -> Data:
    """Test all steps. ``python`` runs the scripts, unless there is a ``container``.

    ``container`` contains the program, engine, image, and so on. ``managed`` means that scripts run in
    environments that mlw builds; then the newest one is tested.
    """
    container_report: Optional[Data] = None
    # Environments built for a container cannot be used on the host.
    usable = [
        record
        for record in list_environments(root)
        if container is not None or ("image" in record and not record["image"])
    ]
    newest = usable[:1] if managed else []
    for record in newest:
        prefix = root.environment(str(record["digest"]))
        python = python_of(prefix)
        if container:
            container = dict(
                container, python=python, mounts=[mount for mount in (prefix, record.get("home")) if mount]
            )
    if container:
        container_report = _probe_container(container)
    elif container is not None:  # no container engine was found
        container_report = {}
    return {
        "cards": find_pci_cards(),
        "driver": parse_driver_version(_read_text("/proc/driver/nvidia/version")),
        "devices": {path: os.access(path, os.R_OK | os.W_OK) for path in _DEVICES if os.path.exists(path)},
        "gpus": list_gpus(root),
        "toolkit": _probe_toolkit(),
        "container": container_report,
        "tried": _try_frameworks([os.path.expanduser(python)]) if python and container is None else None,
    }


def _probe_toolkit() -> Data:
    """Find the NVIDIA Container Toolkit: its command, version, and hook."""
    tool = which("nvidia-ctk")
    version = _run_command([tool, "--version"], 10.0)["out"].strip().splitlines()[:1] if tool else []
    return {"tool": tool, "version": version[0] if version else None, "hook": which("nvidia-container-cli")}


def _probe_container(container: Data) -> Data:
    """Test whether a container with this image can access the GPUs and its Python can use them."""
    engine = Engine(dict(container, name="mlw-doctor"))
    if engine.call("image", "inspect", container["image"])[0]:
        return {"image": container["image"], "missing": True, "tried": None}
    mounts = [[folder, folder, "ro"] for folder in container.get("mounts") or ()]
    shell = 'ls -d /dev/nvidia[0-9]* /dev/dxg 2>/dev/null; echo "MLW-PYTHON $(command -v python3 || command -v python)"'
    result = _run_command(probe_command(container, mounts, ["/bin/sh", "-c", shell]), TIMEOUT, engine)
    report = {
        "image": container["image"],
        "missing": False,
        "code": result["code"],
        "said": result["err"],
        "tried": None,
    }
    lines = result["out"].splitlines()
    report["devices"] = [line for line in lines if line.startswith("/dev/")]
    image_python = next((line[len("MLW-PYTHON ") :] for line in lines if line.startswith("MLW-PYTHON /")), None)
    python = container.get("python") or image_python
    if result["code"] == 0 and python:
        report["tried"] = _try_frameworks(probe_command(container, mounts, [python]), engine)
    return report


def _try_frameworks(command: List[str], engine: Optional[Engine] = None) -> List[Data]:
    """Test CUDA itself and the installed frameworks."""
    results = []
    for what in ("cuda",) + FRAMEWORKS:
        output = _run_command([*command, "-c", PROBE_SCRIPT, what], TIMEOUT, engine)
        line = next((line for line in output["out"].splitlines() if line.startswith(_MARKER)), None)
        if line is not None:
            results.append(_parse_result(line[len(_MARKER) :], what))
        elif output["code"] != 0:  # exit code 0 without a result means that the framework is not installed
            last = (output["err"].strip().splitlines() or ["exit code %s" % output["code"]])[-1]
            results.append({"what": what, "error": last[:300]})
    return results


def _parse_result(text: str, what: str) -> Data:
    try:
        result = parse_json(text)
    except ValueError:
        result = None
    return result if isinstance(result, dict) else {"what": what, "error": "unexpected output"}


def _run_command(arguments: List[str], timeout: float, engine: Optional[Engine] = None) -> Data:
    env = engine.environment() if engine else None
    try:
        process = subprocess.run(
            [encode_argument(argument) for argument in arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout,
            env=env,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        return {"code": None, "out": "", "err": "no response within %g s" % timeout}
    except OSError as error:
        return {"code": 127, "out": "", "err": "%s: %s" % (arguments[0], error.strerror)}
    return {
        "code": process.returncode,
        "out": process.stdout[:65536].decode("utf-8", "replace"),
        "err": process.stderr[-2000:].decode("utf-8", "replace"),
    }


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
