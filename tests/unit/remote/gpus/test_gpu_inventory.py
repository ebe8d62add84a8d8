"""GPU inventory of a host, including unusual ones: the real binding with a fake NVML library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mlworkbench.hosts.gpu_values import Gpus
from mlworkbench.hosts.local_host import install
from mlworkbench.remote.gpus import nvidia_smi
from mlworkbench.remote.shared.layout import Root
from tests.interpreters import oldest_and_newest
from tests.machines.nvml import HERE, FakeGpus

GIB = 1 << 30


@pytest.fixture
def gpus(tmp_path):
    return FakeGpus(tmp_path)


def query_gpus(gpus, env, python=sys.executable):
    """Return the inventory from a separate process that has only the uploaded bundle, as on a target."""
    folder = install(Root(str(gpus.folder / "root"))).parent
    code = "import sys, json; sys.path.insert(0, sys.argv[1])\nfrom remote.gpus.gpu_inventory import query_gpus\n"
    code += "print(json.dumps(query_gpus()))"
    command = [python, "-I", "-S", "-c", code, str(folder)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin", **env})
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_all_values_of_a_card(gpus):
    gpus.set(driver="550.54", cuda=12040)
    gpus.add(
        "GPU-a",
        name="NVIDIA H200 NVL",
        capability="9.0",
        memory=(141 * GIB, 71 * GIB),
        utilisation=93,
        temperature=61,
        power=612345,
        limit=700000,
        clock=3201,
        bus="00000000:3B:00.0",
        process=[("compute", 4711, 70 * GIB), ("graphics", 4711, GIB), ("graphics", 99, 0)],
        mig=[("MIG-1", "1g.18gb"), ("MIG-2", "2g.35gb")],
    )
    inventory = query_gpus(gpus, gpus.env_nvml_only)
    assert {name: inventory[name] for name in ("driver", "cuda", "source", "problem")} == {
        "driver": "550.54",
        "cuda": "12.4",
        "source": "nvml",
        "problem": None,
    }
    (gpu,) = inventory["gpus"]
    assert [device["uuid"] for device in gpu.pop("mig")] == ["MIG-1", "MIG-2"]
    assert gpu == {
        "index": 0,
        "uuid": "GPU-a",
        "name": "NVIDIA H200 NVL",
        "capability": "9.0",
        "memory_total": 141 * GIB,
        "memory_used": 71 * GIB,
        "memory_free": 70 * GIB,
        "utilisation": 93,
        "temperature": 61,
        "power": 612.345,
        "power_limit": 700.0,
        "bus_id": "00000000:3B:00.0",
        "memory_clock": 3201,
        # A process that uses compute and graphics is listed once. The memory of the last process is unknown.
        "processes": [
            {"pid": 4711, "memory": 70 * GIB, "kind": "compute"},
            {"pid": 99, "memory": None, "kind": "graphics"},
        ],
        "error": None,
        "error_code": None,
    }


def test_unreported_values_are_none_not_zero(gpus):
    gpus.add("GPU-a", lacks=["power", "utilisation", "temperature", "memory", "compute", "graphics", "limit", "clock"])
    (gpu,) = query_gpus(gpus, gpus.env_nvml_only)["gpus"]
    for name in "power utilisation temperature memory_total memory_used memory_free power_limit memory_clock".split():
        assert gpu[name] is None, name
    assert gpu["processes"] is None and gpu["error"] is None and gpu["uuid"] == "GPU-a"


def test_many_processes_on_one_card(gpus):
    gpus.add("GPU-a", process=[("compute", 5000 + number, GIB) for number in range(40)])
    (gpu,) = query_gpus(gpus, gpus.env_nvml_only)["gpus"]
    assert [process["pid"] for process in gpu["processes"]] == [5000 + number for number in range(40)]


@pytest.mark.parametrize("fact", [{"handle": 15}, {"error": 15}, {"handle": 999}])
def test_a_lost_card_does_not_hide_others(gpus, fact):
    gpus.add("GPU-a", **fact)
    gpus.add("GPU-b")
    lost, healthy = query_gpus(gpus, gpus.env_nvml_only)["gpus"]
    assert lost["index"] == 0 and lost["error"] and lost["error_code"] and lost["memory_used"] is None
    assert (healthy["index"], healthy["uuid"], healthy["error"]) == (1, "GPU-b", None)


@pytest.mark.parametrize(
    ("code", "message", "problem"),
    [
        (18, "the NVIDIA driver was updated and the old one is still loaded", "driver-mismatch"),
        (9, "the NVIDIA driver is not loaded", "driver-not-loaded"),
        (4, "this user is not allowed to query the NVIDIA driver", "not-allowed"),
        (999, "NVML error", "unknown"),
    ],
)
def test_driver_errors(gpus, code, message, problem):
    gpus.add("GPU-a")
    gpus.set(init=code)
    inventory = query_gpus(gpus, gpus.env_nvml_only)
    assert inventory["problem"].startswith(message) and inventory["problem_code"] == problem
    assert inventory["gpus"] == [] and inventory["source"] is None


def test_nvidia_smi_is_the_fallback_for_nvml(gpus):
    gpus.add("GPU-a", memory=(16 * GIB, GIB), process=[("compute", 4711, GIB)], capability="7.5", lacks=["power"])
    gpus.add("GPU-b", error=15)
    inventory = query_gpus(gpus, gpus.env_smi_only)
    assert (inventory["source"], inventory["driver"], inventory["cuda"]) == ("nvidia-smi", "580.159.04", "13.0")
    first, lost = inventory["gpus"]
    assert (first["uuid"], first["capability"], first["memory_used"]) == ("GPU-a", "7.5", GIB)
    assert first["processes"] == [{"pid": 4711, "memory": GIB, "kind": "compute"}]
    assert first["power"] is None and first["temperature"] == 40
    assert lost["error"] == "it does not respond (GPU is lost)" and lost["error_code"] == "gpu-lost"
    assert lost["bus_id"] == "00000000:02:00.0"


def test_nvidia_smi_that_fails(gpus):
    gpus.set(init=9)
    inventory = query_gpus(gpus, gpus.env_smi_only)
    assert inventory["problem"].startswith("nvidia-smi: NVIDIA-SMI has failed")
    assert inventory["problem_code"] == "driver-not-loaded"


def test_a_machine_without_nvidia_software(tmp_path, gpus):
    inventory = query_gpus(gpus, {"MLW_NVML_LIBRARY": "/no/such/library.so"})
    assert (inventory["gpus"], inventory["source"]) == ([], None)


@pytest.mark.parametrize("python", [path for _, path in oldest_and_newest((3, 8))])
def test_oldest_and_newest_python(python, gpus):
    gpus.add("GPU-a")
    for env in (gpus.env_nvml_only, gpus.env_smi_only):
        assert query_gpus(gpus, env, python)["gpus"][0]["uuid"] == "GPU-a"


def test_real_nvidia_smi_output():
    inventory = nvidia_smi.parse_xml((HERE / "h200.xml").read_text())
    (gpu,) = inventory["gpus"]
    assert (inventory["driver"], inventory["cuda"], gpu["name"]) == ("580.159.04", "13.0", "NVIDIA H200")
    assert gpu["memory_total"] == 143771 << 20 and gpu["memory_used"] == 1011 << 20
    assert (gpu["utilisation"], gpu["power"], gpu["power_limit"]) == (99, 740.52, 700.0)
    assert gpu["mig"] == [] and gpu["processes"] == [{"pid": 437, "memory": 1002 << 20, "kind": "compute"}]


@pytest.mark.parametrize("text", ["", "no xml", "<nvidia_smi_log>"])
def test_output_that_is_not_from_nvidia_smi(text):
    with pytest.raises(ValueError, match=r"."):
        nvidia_smi.parse_xml(text)


def test_invalid_values_from_a_host():
    assert Gpus.from_json("no").problem == "the response of the machine is invalid"
    nonsense = {"gpus": [7, {"uuid": 5, "name": "x" * 10**6, "memory_total": -1, "power": "much", "processes": "all"}]}
    (gpu,) = Gpus.from_json({**nonsense, "driver": ["1"], "new": 1}).gpus
    assert (gpu.uuid, len(gpu.name or ""), gpu.memory_total, gpu.power, gpu.processes) == (None, 200, None, None, ())


def test_the_binding_is_uploaded(tmp_path: Path):
    text = (install(Root(str(tmp_path))) / "vendor" / "pynvml.py").read_text()
    assert "NVIDIA Corporation" in text and "nvmlDeviceGetComputeRunningProcesses_v3" in text
