"""``mlw gpus`` and the GPUs in ``computetarget show`` on many kinds of hosts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.machines.network import wait_until
from tests.machines.nvml import USE_GPU, FakeGpus

GIB = 1 << 30


@pytest.fixture
def gpus(tmp_path):
    return FakeGpus(tmp_path)


def show(user, gpus, *arguments, env=None, **more):
    variables = {**(gpus.env_nvml_only if env is None else env), "PATH": user.env["PATH"]}
    if env is not None and "PATH" in env:
        variables["PATH"] = f"{gpus.bin}:{user.env['PATH']}"
    return user.mlw("gpus", *arguments, env=variables, **more)


def test_gpus_and_their_processes(user, gpus):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        gpus.add(
            "GPU-a",
            name="NVIDIA H200",
            memory=(141 * GIB, 2 * GIB),
            utilisation=93,
            temperature=61,
            power=612_000,
            process=[("compute", process.pid, 2 * GIB), ("graphics", 1, GIB)],
        )
        gpus.add("GPU-b", name="NVIDIA A100", capability="8.0", mig=[("MIG-1", "1g.10gb")], lacks=["power"])
        done = show(user, gpus)
        assert done.code == 0, done
        owner = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
        first, second = done.out.splitlines()[1:3] if "---" not in done.out else done.out.splitlines()[2:4]
        for text in ("NVIDIA H200", "9.0", "141.0 GiB", "139.0 GiB", "93 %", "61 °C", "612 W of 700", "GPU-a"):
            assert text in first, (text, done)
        assert f"{owner} (python -c {process.pid}, 2.0 GiB); 1 graphics" in first
        assert "NVIDIA A100" in second and "8.0" in second and "1g.10gb" in second and " W" not in second
        assert "NVIDIA driver 580.159.04, CUDA 13.0" in done.err
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


def test_json_is_complete_and_unknown_values_are_null(user, gpus):
    gpus.add("GPU-a", lacks=["power", "utilisation"], mig=[("MIG-1", "1g.10gb")])
    done = show(user, gpus, "-o", "json")
    report = json.loads(done.out)
    assert (report["driver"], report["cuda"], report["source"], report["problem"]) == (
        "580.159.04",
        "13.0",
        "nvml",
        None,
    )
    (gpu,) = report["gpus"]
    assert gpu["power"] is None and gpu["utilisation"] is None and gpu["mig"][0]["uuid"] == "MIG-1"
    assert gpu["processes"] == [] and gpu["memory_total"] == 16 * GIB
    assert show(user, gpus, "-o", "tsv", "--query", "gpus[].uuid").out == "GPU-a\n"


def test_process_of_run_shows_run_id(user, gpus):
    gpus.add("GPU-a")
    script = USE_GPU + "import time\nuse_gpu(memory=3 << 30)\nwhile True: time.sleep(60)\n"
    root = user.project(train=script)
    settings = root / "aml_config" / "local.runconfig"
    variables = f"EnvironmentVariables:\n  MLW_FAKE_GPUS: {gpus.state}\n"
    settings.write_text(re.sub(r"(?m)^EnvironmentVariables:.*\n", variables, settings.read_text()))
    done = user.mlw("submit", "--detach", "-c", "local", "train.py", cwd=root, env=gpus.env_nvml_only)
    assert done.code == 0, done
    run = done.run
    wait_until(lambda: bool(os.listdir(gpus.claims)), "the claim of the script")
    shown = show(user, gpus)
    assert f"run {run} (train.py, 3.0 GiB)" in shown.out, shown
    processes = json.loads(show(user, gpus, "-o", "json").out)["gpus"][0]["processes"]
    assert [(process["run"], process["kind"]) for process in processes] == [(run, "compute")]
    assert user.mlw("cancel", run, cwd=root).code == 0
    wait_until(lambda: user.info(run)["status"] != "Running", "the end of the run")
    assert json.loads(show(user, gpus, "-o", "json").out)["gpus"][0]["processes"] == []


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (18, "warning: this machine: the NVIDIA driver was updated and the old one is still loaded", "hint: reboot"),
        (9, "warning: this machine: the NVIDIA driver is not loaded", "hint: load the driver"),
    ],
)
def test_driver_errors_show_remedy(user, gpus, code, message, hint):
    gpus.add("GPU-a")
    gpus.set(init=code)
    done = show(user, gpus, env=gpus.env)
    assert (done.code, done.out) == (0, "") and message in done.err and hint in done.err, done


def test_gpu_lost_from_bus(user, gpus):
    gpus.add("GPU-a", handle=15)
    gpus.add("GPU-b")
    done = show(user, gpus)
    assert "not responding: it has fallen off the bus" in done.out and "GPU-b" in done.out


def test_nvidia_smi_only(user, gpus):
    gpus.add("GPU-a")
    done = show(user, gpus, env=gpus.env_smi_only)
    assert "GPU-a" in done.out and "reported by nvidia-smi because NVML could not be loaded" in done.err, done


def test_no_gpu(user):
    done = user.mlw("gpus")
    assert (done.code, done.out) == (0, "")
    assert "this machine has no NVIDIA GPU" in done.err or "no driver for it" in done.err


def test_watch_queries_each_time(user, gpus):
    gpus.add("GPU-a", utilisation=11)
    path = gpus.folder / "told"
    env = {**gpus.env_nvml_only, "PATH": user.env["PATH"]}
    with open(path, "wb") as file:
        process = user.start("gpus", "--watch", cwd=user.home, env=env, stdout=file)
        try:
            wait_until(lambda: b" 11 %" in path.read_bytes(), "the first look")
            gpus.change("GPU-a", utilisation=77)
            wait_until(lambda: b" 77 %" in path.read_bytes(), "the next look")
        finally:
            process.kill()
            process.communicate()


def test_computetarget_show_lists_gpus(user, gpus):
    gpus.add("GPU-a", memory=(141 * GIB, 0), name="NVIDIA H200")
    root = user.project()
    env = {**gpus.env_nvml_only, "PATH": user.env["PATH"]}
    done = user.mlw("computetarget", "show", "local", cwd=root, env=env)
    assert "1, NVIDIA driver 580.159.04, CUDA 13.0" in done.out, done
    assert "NVIDIA H200, compute 9.0, 141.0 GiB of 141.0 GiB free" in done.out and "not in use" in done.out
    shown = json.loads(user.mlw("computetarget", "show", "local", "-o", "json", cwd=root, env=env).out)
    assert shown["gpus"]["gpus"][0]["uuid"] == "GPU-a" and shown["gpus"]["driver"] == "580.159.04"
    gpus.set(init=18)
    done = user.mlw("computetarget", "show", "local", cwd=root, env=env)
    assert done.code == 0 and "version mismatch" in done.out


def test_doctor_reports_failing_step(user, gpus, tmp_path):
    root = user.project()
    env = {**gpus.env_nvml_only, "PATH": user.env["PATH"]}
    gpus.add("GPU-a", name="NVIDIA H200")
    stub = tmp_path / "site"
    stub.mkdir()
    (stub / "torch.py").write_text(
        "__version__ = '2.0+cpu'\nclass version: cuda = None\nclass cuda:\n    device_count = staticmethod(lambda: 0)\n"
    )
    done = user.mlw("doctor", "gpu", "-o", "json", cwd=root, env={**env, "PYTHONPATH": str(stub)})
    rows = {row["what"]: row for row in json.loads(done.out)}
    assert done.code == 75 and rows["driver"]["state"] == rows["nvml"]["state"] == "ok", done
    assert rows["nvml"]["found"] == "NVML: 0: NVIDIA H200"
    assert rows["framework"]["found"] == "PyTorch 2.0+cpu was built without CUDA"
    gpus.set(init=18)
    done = user.mlw("doctor", "gpu", "-t", "local", cwd=root, env=env)
    assert done.code == 75 and "version mismatch" in done.out and "hint: driver: reboot the target" in done.err, done
    done = user.mlw("doctor", "gpu", "-t", "nowhere", cwd=root, env=env)
    assert done.code == 66 and "nowhere" in done.err and "local" in done.err


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
def test_lease_without_run_shows_its_user(user, gpus):
    uuid = f"GPU-{os.urandom(6).hex()}"  # random, because all processes on the machine share lease names
    gpus.add(uuid)
    bind = (
        f"import socket\none = socket.socket(socket.AF_UNIX)\none.bind('\\0mlw-gpu-{uuid}')\nprint(flush=True)\ninput()"
    )
    command = ["/usr/bin/python3", "-c", bind]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    other = subprocess.Popen(command, **pipes, user=65534, group=65534, extra_groups=[], cwd="/")
    try:
        assert other.stdout.readline() == b"\n"
        done = show(user, gpus)
        assert f"held by user nobody (pid {other.pid}) (not an mlw run)" in " ".join(done.out.split()), done
    finally:
        other.kill()
        other.communicate()
