"""The way from a script to the GPU, tried link by link: driver, NVML, toolkit, container, framework. Judges nothing."""

from __future__ import annotations

import os
import subprocess

from ..engine import Engine, probe_command
from ..environments.environment import environments
from ..launcher import encode
from ..shared.environment_layout import python_of
from ..shared.layout import Root
from ..shared.programs import which
from ..shared.untrusted import parse_json
from .inventory import loaded_driver, pci_cards
from .report import gather

TYPE_CHECKING = False  # as in typing, whose import an agent would wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Data = Dict[str, Any]

PATIENCE = 120.0  # seconds for one framework: loading one from a cold disk takes most of a minute
FRAMEWORKS = ("torch", "tensorflow", "jax", "cupy")
_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/dxg")
_MARK = "MLW-TRIED "

# Runs with the script's own Python, 3.5 to the newest, also inside a container. One word: what to try. It takes a
# little memory of the first GPU and computes with it: what says that it is there need not work.
TRY = """
import json, os, sys
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
def cuda():
    import ctypes
    lib = ctypes.CDLL("libcuda.so.1")
    def ask(name, *words):
        code = getattr(lib, name)(*words)
        if code:
            text = ctypes.c_char_p()
            lib.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError("%s: %s (%d)" % (name, (text.value or b"?").decode(), code))
    version, count, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    context, memory = ctypes.c_void_p(), ctypes.c_void_p()
    ask("cuInit", 0)
    ask("cuDriverGetVersion", ctypes.byref(version))
    ask("cuDeviceGetCount", ctypes.byref(count))
    found = {"version": "%d.%d" % (version.value // 1000, version.value % 1000 // 10), "count": count.value}
    if count.value:
        ask("cuDeviceGet", ctypes.byref(device), 0)
        ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        ask("cuCtxSetCurrent", context)
        ask("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 20))
        ask("cuMemsetD8_v2", memory, ctypes.c_ubyte(7), ctypes.c_size_t(1 << 20))
        ask("cuCtxSynchronize")
        ask("cuMemFree_v2", memory)
        found["worked"] = True
    return found
def torch():
    import torch as t
    found = {"version": t.__version__, "cuda": t.version.cuda, "count": t.cuda.device_count()}
    if found["count"]:
        found["worked"] = float((t.ones(1024, device="cuda") * 2).sum()) == 2048.0
        found["name"] = t.cuda.get_device_name(0)
    return found
def tensorflow():
    import tensorflow as t
    found = {"version": t.__version__, "cuda": None, "count": len(t.config.list_physical_devices("GPU"))}
    found["cuda"] = dict(getattr(t.sysconfig, "get_build_info", dict)()).get("cuda_version")
    if found["count"]:
        with t.device("/GPU:0"):
            found["worked"] = float(t.reduce_sum(t.ones([1024]) * 2)) == 2048.0
    return found
def jax():
    import jax as j
    devices = [one for one in j.devices() if one.platform in ("gpu", "cuda")]
    found = {"version": j.__version__, "cuda": None, "count": len(devices)}
    if devices:
        found["worked"] = float((j.device_put(j.numpy.ones(1024), devices[0]) * 2).sum()) == 2048.0
        found["name"] = devices[0].device_kind
    return found
def cupy():
    import cupy as c
    found = {"version": c.__version__, "cuda": None, "count": c.cuda.runtime.getDeviceCount()}
    found["cuda"] = "%d.%d" % divmod(c.cuda.runtime.runtimeGetVersion() // 10, 100)
    if found["count"]:
        found["worked"] = float((c.ones(1024) * 2).sum()) == 2048.0
    return found
what = sys.argv[1]
if what != "cuda":
    import importlib.util
    sys.path[:] = [one for one in sys.path if one]
    if importlib.util.find_spec(what) is None:
        sys.exit(0)
try:
    found = globals()[what]()
except Exception as error:
    found = {"error": "%s: %s" % (type(error).__name__, (str(error).strip().splitlines() or [""])[0][:300])}
found["what"] = what
sys.stdout.write("\\nMLW-TRIED " + json.dumps(found) + "\\n")
"""


def examine(root: Root, python: Optional[str], container: Optional[Data], managed: bool = False) -> Data:
    """All links. ``python``: of the scripts; with a ``container`` (program, engine, image, …) that of its image.

    ``managed``: scripts run in environments of ours, and the newest is tried.
    """
    with_engine: Optional[Data] = None
    # Those that were made for a container are not for the machine around it.
    fit = [note for note in environments(root) if container is not None or ("image" in note and not note["image"])]
    newest = fit[:1] if managed else []
    for note in newest:
        prefix = root.environment(str(note["digest"]))
        python = python_of(prefix)
        if container:
            container = dict(container, python=python, mounts=[one for one in (prefix, note.get("home")) if one])
    if container:
        with_engine = _container(container)
    elif container is not None:  # there is no engine to be asked
        with_engine = {}
    return {
        "cards": pci_cards(),
        "driver": loaded_driver(_read("/proc/driver/nvidia/version")),
        "devices": {path: os.access(path, os.R_OK | os.W_OK) for path in _DEVICES if os.path.exists(path)},
        "gpus": gather(root),
        "toolkit": _toolkit(),
        "container": with_engine,
        "tried": _try_all([os.path.expanduser(python)]) if python and container is None else None,
    }


def _toolkit() -> Data:
    """NVIDIA's container toolkit: its tool, its hook, its list of devices."""
    tool = which("nvidia-ctk")
    version = _call([tool, "--version"], 10.0)["out"].strip().splitlines()[:1] if tool else []
    return {"tool": tool, "version": version[0] if version else None, "hook": which("nvidia-container-cli")}


def _container(container: Data) -> Data:
    """Whether a container of this image gets the GPUs, and what its Python makes of them."""
    engine = Engine(dict(container, name="mlw-doctor"))
    if engine.call("image", "inspect", container["image"])[0]:
        return {"image": container["image"], "missing": True, "tried": None}
    mounts = [[folder, folder, "ro"] for folder in container.get("mounts") or ()]
    shell = 'ls -d /dev/nvidia[0-9]* /dev/dxg 2>/dev/null; echo "MLW-PYTHON $(command -v python3 || command -v python)"'
    seen = _call(probe_command(container, mounts, ["/bin/sh", "-c", shell]), PATIENCE, engine)
    found = {"image": container["image"], "missing": False, "code": seen["code"], "said": seen["err"], "tried": None}
    lines = seen["out"].splitlines()
    found["devices"] = [line for line in lines if line.startswith("/dev/")]
    own = next((line[len("MLW-PYTHON ") :] for line in lines if line.startswith("MLW-PYTHON /")), None)
    python = container.get("python") or own
    if seen["code"] == 0 and python:
        found["tried"] = _try_all(probe_command(container, mounts, [python]), engine)
    return found


def _try_all(words: List[str], engine: Optional[Engine] = None) -> List[Data]:
    """CUDA itself, and the frameworks that are installed."""
    found = []
    for what in ("cuda",) + FRAMEWORKS:
        said = _call([*words, "-c", TRY, what], PATIENCE, engine)
        line = next((line for line in said["out"].splitlines() if line.startswith(_MARK)), None)
        if line is not None:
            found.append(_parsed(line[len(_MARK) :], what))
        elif said["code"] != 0:  # with 0 and no word it is not installed
            last = (said["err"].strip().splitlines() or ["exit code %s" % said["code"]])[-1]
            found.append({"what": what, "error": last[:300]})
    return found


def _parsed(text: str, what: str) -> Data:
    try:
        found = parse_json(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"what": what, "error": "unexpected output"}


def _call(words: List[str], patience: float, engine: Optional[Engine] = None) -> Data:
    env = engine.environment() if engine else None
    try:
        done = subprocess.run(
            [encode(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=patience,
            env=env,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        return {"code": None, "out": "", "err": "no response within %g s" % patience}
    except OSError as error:
        return {"code": 127, "out": "", "err": "%s: %s" % (words[0], error.strerror)}
    return {
        "code": done.returncode,
        "out": done.stdout[:65536].decode("utf-8", "replace"),
        "err": done.stderr[-2000:].decode("utf-8", "replace"),
    }


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
