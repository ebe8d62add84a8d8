"""The GPU check: which part of the GPU stack is reported as broken, and the remedy. The probe results are test data."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mlworkbench.hosts.host_facts import Engine, Facts
from mlworkbench.model import Compute
from mlworkbench.remote.gpus.gpu_probe import PROBE_SCRIPT
from mlworkbench.targets.gpu_check import gpu_findings

CARD = {"index": 0, "uuid": "GPU-a", "name": "NVIDIA H200", "capability": "9.0", "error": None}
GPUS = {"driver": "580.159.04", "cuda": "13.0", "source": "nvml", "problem": None, "gpus": [CARD]}
NONE = {"driver": None, "cuda": None, "source": None, "problem": None, "gpus": []}
CUDA = {"what": "cuda", "version": "13.0", "count": 1, "worked": True}
TORCH = {"what": "torch", "version": "2.11.0+cu130", "cuda": "13.0", "count": 1, "worked": True}
HEALTHY = {
    "cards": [],
    "driver": "580.159.04",
    "devices": {"/dev/nvidiactl": True},
    "gpus": GPUS,
    "tried": [CUDA, TORCH],
}
INSIDE = {"image": "i", "missing": False, "code": 0, "devices": ["/dev/nvidia0"], "tried": [CUDA, TORCH]}
LOCAL = Compute(name="local", type="local")
DOCKER = Compute(name="gpu", type="docker", nvidia_docker=True)
ENGINE = Engine(program="docker", version="28.2.2", nvidia=True)


def states(found, compute=LOCAL, facts=None):
    return [(one.what, one.state) for one in gpu_findings(found, facts or Facts(docker=ENGINE), compute)]


def last(found, compute=LOCAL, facts=None):
    return gpu_findings(found, facts or Facts(docker=ENGINE), compute)[-1]


def test_all_well():
    assert states(HEALTHY) == [("driver", "ok"), ("nvml", "ok"), ("cuda", "ok"), ("framework", "ok")]
    assert last(HEALTHY).found == "PyTorch 2.11.0+cu130, built for CUDA 13.0: a small computation on the GPU succeeded"


@pytest.mark.parametrize(
    ("change", "what", "words", "hint"),
    [
        ({"gpus": NONE, "driver": None}, "driver", "no NVIDIA GPU", "--gpus all"),
        (
            {"gpus": NONE, "driver": None, "cards": ["0000:01:00.0"]},
            "driver",
            "no driver for it",
            "install the NVIDIA driver",
        ),
        (
            {
                "gpus": {**NONE, "problem": "the NVIDIA driver is not loaded", "problem_code": "driver-not-loaded"},
                "driver": None,
            },
            "driver",
            "not loaded",
            "modprobe",
        ),
        (
            {"gpus": {**NONE, "problem": "driver mismatch", "problem_code": "driver-mismatch"}},
            "nvml",
            "mismatch",
            "reboot",
        ),
        ({"gpus": {**NONE, "problem": "too late", "problem_code": "no-response"}}, "nvml", "too late", "NVRM: Xid"),
        ({"gpus": {**NONE, "problem": "odd", "problem_code": "unknown"}}, "nvml", "odd", "nvidia-smi"),
        ({"gpus": {**GPUS, "gpus": []}}, "nvml", "finds no GPU", "dmesg"),
        ({"devices": {"/dev/nvidiactl": False}}, "devices", "no access to /dev/nvidiactl", "usermod"),
        (
            {"gpus": {**GPUS, "gpus": [{**CARD, "error": "it has fallen off the bus", "error_code": "gpu-lost"}]}},
            "gpu 0",
            "fallen off the bus",
            "reboot",
        ),
        (
            {"gpus": {**GPUS, "gpus": [{**CARD, "error": "it must be reset", "error_code": "gpu-needs-reset"}]}},
            "gpu 0",
            "reset",
            "--gpu-reset",
        ),
        (
            {"tried": [CUDA, {"what": "torch", "version": "2.1+cpu", "cuda": None, "count": 0}]},
            "framework",
            "without CUDA",
            "+cpu",
        ),
        (
            {"gpus": {**GPUS, "cuda": "11.4"}, "tried": [{**TORCH, "worked": None, "cuda": "12.1", "count": 0}]},
            "framework",
            "needs a newer driver: this one supports CUDA 11.4",
            "update the driver",
        ),
        ({"tried": [{**TORCH, "worked": None, "count": 0}]}, "framework", "sees no GPU", "CUDA_VISIBLE_DEVICES"),
        (
            {"tried": [{"what": "torch", "error": "no kernel image is available"}]},
            "framework",
            "kernel image",
            "does not support that GPU",
        ),
        ({"tried": [{"what": "jax", "error": "CUDA out of memory"}]}, "framework", "out of memory", "mlw gpus"),
    ],
)
def test_the_broken_link_comes_last_with_its_remedy(change, what, words, hint):
    found = last({**HEALTHY, **change})
    assert (found.what, found.state) == (what, "error") and words in found.found and hint in (found.hint or "")


def test_libcuda_that_is_missing():
    rows = gpu_findings(
        {**HEALTHY, "tried": [{"what": "cuda", "error": "OSError: libcuda.so.1: cannot open"}]}, Facts(), LOCAL
    )
    broken = next(one for one in rows if one.what == "cuda")
    assert broken.state == "error" and "libcuda.so.1 of the driver not found" in (broken.hint or "")


def test_nvidia_smi_only_is_a_warning():
    assert states({**HEALTHY, "gpus": {**GPUS, "source": "nvidia-smi"}})[1] == ("nvml", "warning")


def test_in_a_container():
    found = {
        **HEALTHY,
        "tried": None,
        "container": INSIDE,
        "toolkit": {"version": "NVIDIA Container Toolkit CLI version 1.17.4"},
    }
    assert states(found, DOCKER) == [
        ("driver", "ok"),
        ("nvml", "ok"),
        ("toolkit", "ok"),
        ("container", "ok"),
        ("cuda", "ok"),
        ("framework", "ok"),
    ]
    bare = Facts(docker=Engine(program="docker", version="28.2.2", nvidia=False))
    assert states(found, DOCKER, bare)[-1] == ("toolkit", "error")
    assert "nvidia-ctk runtime configure" in (last(found, DOCKER, bare).hint or "")
    assert states({**found, "container": {**INSIDE, "missing": True}}, DOCKER)[-1] == ("container", "warning")
    failed = last(
        {**found, "container": {**INSIDE, "code": 125, "said": "docker: Error\ncould not select device driver"}}, DOCKER
    )
    assert failed.state == "error" and failed.found.endswith("could not select device driver")
    assert states({**found, "container": {**INSIDE, "devices": []}}, DOCKER)[-1] == ("container", "error")
    plain = Compute(name="gpu", type="docker")
    assert ("nvidiaDocker", "warning") in states(found, plain)


@pytest.mark.parametrize("found", [{}, {"gpus": "x", "tried": 5, "container": 1, "devices": []}])
def test_a_machine_that_tells_nonsense(found):
    assert states(found)[0] == ("driver", "error")


def test_what_runs_there_tries_only_what_is_installed(tmp_path):
    def tried(what):
        words = [sys.executable, "-c", PROBE_SCRIPT, what]
        env = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=60)
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("MLW-TRIED ")]
        return json.loads(lines[0].partition(" ")[2]) if lines else None

    assert tried("cupy") is None
    (tmp_path / "cupy.py").write_text("raise RuntimeError('broken\\nsecond line')")
    assert tried("cupy") == {"what": "cupy", "error": "RuntimeError: broken"}
    (tmp_path / "torch.py").write_text(
        "print('hello')\n__version__ = '2.0+cpu'\nclass version: cuda = None\n"
        "class cuda:\n    device_count = staticmethod(lambda: 0)\n"
    )
    assert tried("torch") == {"what": "torch", "version": "2.0+cpu", "cuda": None, "count": 0}
