"""What is told of the GPUs of a host, also of odd ones: by the real binding over a library that plays NVML."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mlworkbench.hosts.gpus import Gpus
from mlworkbench.hosts.local import install
from mlworkbench.remote.gpus import smi
from mlworkbench.remote.shared.layout import Root
from tests.interpreters import oldest_and_newest
from tests.machines.nvml import HERE, FakeGpus

GIB = 1 << 30


@pytest.fixture
def gpus(tmp_path):
    return FakeGpus(tmp_path)


def look(gpus, env, python=sys.executable):
    """In a process of its own, with what travels and nothing else: as on a target."""
    place = install(Root(str(gpus.folder / "root"))).parent
    code = "import sys, json; sys.path.insert(0, sys.argv[1])\nfrom remote.gpus.inventory import look\n"
    code += "print(json.dumps(look()))"
    words = [python, "-I", "-S", "-c", code, str(place)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin", **env})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_all_that_a_card_tells(gpus):
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
    found = look(gpus, gpus.env_nvml_only)
    assert {name: found[name] for name in ("driver", "cuda", "source", "problem")} == {
        "driver": "550.54",
        "cuda": "12.4",
        "source": "nvml",
        "problem": None,
    }
    (gpu,) = found["gpus"]
    assert [one["uuid"] for one in gpu.pop("mig")] == ["MIG-1", "MIG-2"]
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
        # one that computes and draws is told once; the memory of the last one is not known
        "processes": [
            {"pid": 4711, "memory": 70 * GIB, "kind": "compute"},
            {"pid": 99, "memory": None, "kind": "graphics"},
        ],
        "error": None,
    }


def test_what_a_card_does_not_tell_is_not_zero(gpus):
    gpus.add("GPU-a", lacks=["power", "utilisation", "temperature", "memory", "compute", "graphics", "limit", "clock"])
    (gpu,) = look(gpus, gpus.env_nvml_only)["gpus"]
    for name in "power utilisation temperature memory_total memory_used memory_free power_limit memory_clock".split():
        assert gpu[name] is None, name
    assert gpu["processes"] is None and gpu["error"] is None and gpu["uuid"] == "GPU-a"


def test_many_processes_on_one_card(gpus):
    gpus.add("GPU-a", process=[("compute", 5000 + number, GIB) for number in range(40)])
    (gpu,) = look(gpus, gpus.env_nvml_only)["gpus"]
    assert [one["pid"] for one in gpu["processes"]] == [5000 + number for number in range(40)]


@pytest.mark.parametrize("fact", [{"handle": 15}, {"error": 15}, {"handle": 999}])
def test_a_card_that_has_fallen_off_the_bus_hides_no_other(gpus, fact):
    gpus.add("GPU-a", **fact)
    gpus.add("GPU-b")
    lost, well = look(gpus, gpus.env_nvml_only)["gpus"]
    assert lost["index"] == 0 and lost["error"] and lost["memory_used"] is None
    assert (well["index"], well["uuid"], well["error"]) == (1, "GPU-b", None)


@pytest.mark.parametrize(
    ("code", "words"),
    [(18, "the NVIDIA driver was updated and the old one is still loaded"), (9, "the NVIDIA driver is not loaded")],
)
def test_a_driver_in_trouble(gpus, code, words):
    gpus.add("GPU-a")
    gpus.set(init=code)
    found = look(gpus, gpus.env)
    assert found["problem"].startswith(words) and found["gpus"] == [] and found["source"] is None


def test_nvidia_smi_where_nvml_cannot_be_loaded(gpus):
    gpus.add("GPU-a", memory=(16 * GIB, GIB), process=[("compute", 4711, GIB)], capability="7.5", lacks=["power"])
    gpus.add("GPU-b", error=15)
    found = look(gpus, gpus.env_smi_only)
    assert (found["source"], found["driver"], found["cuda"]) == ("nvidia-smi", "580.159.04", "13.0")
    first, lost = found["gpus"]
    assert (first["uuid"], first["capability"], first["memory_used"]) == ("GPU-a", "7.5", GIB)
    assert first["processes"] == [{"pid": 4711, "memory": GIB, "kind": "compute"}]
    assert first["power"] is None and first["temperature"] == 40
    assert lost["error"] == "it does not respond (GPU is lost)" and lost["bus_id"] == "00000000:02:00.0"


def test_nvidia_smi_in_trouble(gpus):
    gpus.set(init=9)
    assert look(gpus, gpus.env_smi_only)["problem"].startswith("nvidia-smi: NVIDIA-SMI has failed")


def test_a_machine_without_anything_of_nvidia(tmp_path, gpus):
    found = look(gpus, {"MLW_NVML_LIBRARY": "/no/such/library.so"})
    assert (found["gpus"], found["source"]) == ([], None)


@pytest.mark.parametrize("python", [path for _, path in oldest_and_newest((3, 8))])
def test_old_and_new_pythons_of_hosts(python, gpus):
    gpus.add("GPU-a")
    for env in (gpus.env_nvml_only, gpus.env_smi_only):
        assert look(gpus, env, python)["gpus"][0]["uuid"] == "GPU-a"


def test_what_nvidia_smi_really_says():
    found = smi.parse((HERE / "h200.xml").read_text())
    (gpu,) = found["gpus"]
    assert (found["driver"], found["cuda"], gpu["name"]) == ("580.159.04", "13.0", "NVIDIA H200")
    assert gpu["memory_total"] == 143771 << 20 and gpu["memory_used"] == 1011 << 20
    assert (gpu["utilisation"], gpu["power"], gpu["power_limit"]) == (99, 740.52, 700.0)
    assert gpu["mig"] == [] and gpu["processes"] == [{"pid": 437, "memory": 1002 << 20, "kind": "compute"}]


@pytest.mark.parametrize("text", ["", "no xml", "<nvidia_smi_log>"])
def test_what_is_not_from_nvidia_smi(text):
    with pytest.raises(ValueError, match=r"."):
        smi.parse(text)


def test_a_host_that_tells_nonsense():
    assert Gpus.from_json("no").problem == "the response of the machine is invalid"
    nonsense = {"gpus": [7, {"uuid": 5, "name": "x" * 10**6, "memory_total": -1, "power": "much", "processes": "all"}]}
    (gpu,) = Gpus.from_json({**nonsense, "driver": ["1"], "new": 1}).gpus
    assert (gpu.uuid, len(gpu.name or ""), gpu.memory_total, gpu.power, gpu.processes) == (None, 200, None, None, ())


def test_the_binding_travels(tmp_path: Path):
    text = (install(Root(str(tmp_path))) / "vendor" / "pynvml.py").read_text()
    assert "NVIDIA Corporation" in text and "nvmlDeviceGetComputeRunningProcesses_v3" in text
