"""The sample project ``gpu-check``: its readme, with a simulated GPU and without one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mlworkbench.config.gallery import GALLERY
from tests.e2e.spark_projects import set_compute_key
from tests.machines.nvml import HERE, FakeGpus

GIB = 1 << 30


@pytest.fixture
def project(user) -> Path:
    return created(user)


def created(user) -> Path:
    done = user.mlw("project", "create", "--name", "check", "--template", "gpu-check")
    assert done.code == 0, done
    return user.home / "check"


@pytest.fixture
def gpus(user, tmp_path) -> FakeGpus:
    """One simulated GPU, visible to mlw and, through libcuda and NVML, to the script."""
    fake = FakeGpus(tmp_path)
    fake.add(f"GPU-{os.urandom(6).hex()}", memory=(139 * GIB, 0), name="NVIDIA H200", utilisation=0)
    libraries = tmp_path / "driver"
    libraries.mkdir()
    shutil.copy(fake.library, libraries / "libnvidia-ml.so.1")
    compiler = ["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", str(libraries / "libcuda.so.1")]
    subprocess.run([*compiler, str(HERE / "fake_cuda.c")], check=True, timeout=120)
    user.env.update(fake.env_nvml_only)
    return fake


def submit(user, root: Path, *arguments: str, fault: str = ""):
    variables = {
        "MLW_FAKE_GPUS": user.env["MLW_FAKE_GPUS"],
        "MLW_FAKE_CUDA": fault,
        "LD_LIBRARY_PATH": str(user.home.parent / "driver"),
    }
    given = [argument for name, value in variables.items() for argument in ("--env", f"{name}={value}")]
    return user.mlw("submit", "-c", "local-gpu", *given, "check.py", *arguments, cwd=root)


def test_sample_with_gpu(user, gpus, project):
    done = submit(user, project, "--seconds", "2")
    assert done.code == 0, done
    assert "GPUs on this machine: NVIDIA H200, 139.0 GiB" in done.out.splitlines()
    assert "this run has 1 GPU; the driver supports CUDA up to 12.8" in done.out
    assert "GPU 0: NVIDIA H200, 139.0 GiB, compute capability 9.0, GPU-00010203-0405-" in done.out
    assert "billion operations per second; result verified" in done.out
    assert "GPU used:  yes – NVIDIA H200, " in done.err, "and what mlw measured agrees"
    record = user.info(done.run)
    assert (record["gpus"], record["gpu"]["used"], record["params"]["device"]) == ("1", "yes", "NVIDIA H200")
    outputs = user.folder(done.run) / "work" / "outputs"
    assert (outputs / "speed.svg").read_text().count("<polyline") == 1
    report = json.loads((outputs / "gpu.json").read_text())
    assert (report["GPUs of this run"], report["cuda"]) == (["NVIDIA H200"], "12.8")
    assert report["CUDA_VISIBLE_DEVICES"].startswith("GPU-")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "retain=2",
            "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY, in words\nhint: the GPU memory is full",
        ),
        ("launch=700", "cuLaunchKernel: CUDA_ERROR, in words"),
        ("wrong", "the GPU computed a wrong result\nhint: "),
    ],
)
def test_failing_gpu_fails_run(user, gpus, project, fault, message):
    done = submit(user, project, "--seconds", "0.2", fault=fault)
    assert done.code == 1, done
    assert f"the GPU cannot be used: {message}" in done.out
    assert user.info(done.run)["status"] == "Failed"


def test_driver_without_support_for_old_gpus(user, gpus, project):
    done = submit(user, project, "--seconds", "0.2", fault="oldest=sm_80")
    assert done.code == 0 and "result verified" in done.out, done


@pytest.mark.parametrize(
    ("fault", "message"), [("init=100", "no GPU is visible: CUDA_ERROR"), ("none", "the driver is installed")]
)
def test_driver_without_gpu(user, gpus, project, fault, message):
    done = submit(user, project, "--require", "--seconds", "0.2", fault=fault)
    assert done.code == 1, done
    assert (
        f"this run has no GPU: {message}" in done.out
        and "\nhint: the machine has a GPU that the run cannot use" in done.out
    )


def test_sample_without_gpu(user, project):
    arguments = ("submit", "-c", "local", "check.py", "--seconds", "0.5")
    done = user.mlw(*arguments, cwd=project)
    assert done.code == 0, done
    assert "this run has no GPU: no NVIDIA driver: libcuda.so.1: cannot open shared object file" in done.out
    assert "\nhint: " in done.out
    record = user.info(done.run)
    assert (record["params"]["device"], record["gflops"] > 0) == ("CPU", True)
    assert (user.folder(done.run) / "work" / "outputs" / "speed.svg").read_text().count("<polyline") == 1
    curve = json.loads(user.mlw("history", "metrics", done.run, "-o", "json", cwd=project).out)
    assert len(curve["metrics"]["gflops"]) > 1
    required = user.mlw(*arguments, "--require", cwd=project)
    assert required.code == 1, required
    waiting = user.mlw("submit", "-c", "local-gpu", "check.py", cwd=project)
    assert waiting.code != 0 and "GPU" in waiting.err, "a run that asks for one does not even start"


def test_run_in_container(laptop, engine):
    laptop.use_engine(engine)
    root = created(laptop)
    set_compute_key(root, "docker", "baseDockerImage", engine.image)
    set_compute_key(root, "docker", "userManagedEnvironment", "true")  # needs only Python, which the image has
    done = laptop.mlw("submit", "-c", "docker", "check.py", "--seconds", "0.2", cwd=root)
    assert done.code == 0, done
    assert "container: True" in done.out.splitlines()
    assert "nvidiaDocker: true" in done.out, "the likely reason"
    assert sorted(path.name for path in (laptop.folder(done.run) / "work" / "outputs").iterdir()) == [
        "gpu.json",
        "speed.svg",
    ]
    assert engine.containers() == []


def test_script_without_mlw(tmp_path):
    for path in (GALLERY / "gpu-check").glob("*.py"):
        shutil.copy(path, tmp_path)
    command = ["/usr/bin/python3", "-B", "check.py", "--seconds", "0.1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "wrote outputs/gpu.json" in done.stdout, done
    wrong = subprocess.run([*command[:3], "--seconds", "0"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 2 and "--seconds must be" in wrong.stderr
