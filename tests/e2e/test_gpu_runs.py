"""GPU runs on a laptop with simulated GPUs: requests, display, verdicts, and queries."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.e2e.package_index import wheel
from tests.e2e.remote_target import RemoteTarget
from tests.e2e.test_environment import enable_managed_environment
from tests.machines.channel import depend
from tests.machines.network import wait_until
from tests.machines.nvml import USE_GPU, FakeGpus

GIB = 1 << 30
BUSY = USE_GPU + "use_gpu(memory=3 << 30, utilisation=90)\nimport time; time.sleep(1.5)\n"
WAIT_SCRIPT = "import os, time\nwhile not os.path.exists(os.environ['DOOR']): time.sleep(0.02)\n"


@pytest.fixture
def gpus(user, tmp_path):
    simulated = FakeGpus(tmp_path)
    simulated.uuid = simulated.add(
        f"GPU-{os.urandom(6).hex()}", memory=(16 * GIB, 0), name="NVIDIA H200", utilisation=0
    )
    path = f"{simulated.bin}:{user.env['PATH']}"
    user.env.update(simulated.env_nvml_only, PATH=path, DOOR=str(tmp_path / "door"))
    return simulated


def variables(user):
    return [option for name in ("MLW_FAKE_GPUS", "DOOR") for option in ("--env", f"{name}={user.env[name]}")]


def test_gpu_run_from_submit_to_list(user, gpus):
    root = user.project(train=BUSY, cpu="print('hello')\nimport time; time.sleep(1.5)\n")
    done = user.mlw("submit", "--gpus", "1", *variables(user), "train.py", cwd=root)
    assert done.code == 0, done
    assert "GPU 0: NVIDIA H200, compute capability 9.0, memory clock 3.2 GHz, PCI bus id " in done.err
    assert "total memory 16.00 GiB, free memory 16.00 GiB" in done.err
    assert "GPU used:  yes – NVIDIA H200, " in done.err
    info = user.info(done.run)
    assert (info["gpus"], info["gpu"]["used"]) == ("1", "yes")
    assert info["gpu"]["got"]["gpus"][0]["uuid"] == gpus.uuid
    assert info["gpu"]["gpus"][0]["peak_memory"] == 3 * GIB

    idle = user.mlw("submit", "--gpus", "h200", *variables(user), "cpu.py", cwd=root)
    assert "GPU used:  no – no process of the run opened a GPU" in idle.err, idle
    assert "GPU cause: " in idle.err
    assert "Remedy:" in idle.err
    shown = user.mlw("history", "info", idle.run, cwd=root)
    assert "no – no process of the run opened a GPU" in shown.out

    listed = user.mlw("history", "list", cwd=root)
    assert "gpu" in listed.out.lower().splitlines()[0]
    assert re.search(r" yes \d+ %", listed.out), listed
    queried = user.mlw("history", "list", "--where", 'gpu = "no"', "-o", "json", cwd=root)
    assert [run["run_id"] for run in json.loads(queried.out)] == [idle.run]


def test_gpu_queue_continues_without_client(user, gpus):
    root = user.project(wait=WAIT_SCRIPT, train="print('my turn')\n")
    first = user.mlw("submit", "--detach", "--gpus", "all", *variables(user), "wait.py", cwd=root)
    second = user.mlw("submit", "--detach", "--gpus", "1", "train.py", cwd=root)
    held = f"GPU 0 held by run {first.run}"
    wait_until(lambda: user.info(second.run)["detail"] == held, "the second run waits for the first")
    assert user.info(second.run)["status"] == "Queued"
    listed = user.mlw("ps", cwd=root)
    assert f"Queued (GPU 0 held by run {first.run})" in " ".join(listed.out.split()), listed
    third = user.mlw("submit", "--detach", "--gpus", "1", "train.py", cwd=root)
    done = user.mlw("cancel", third.run, cwd=root)
    assert "Canceled" in done.err, done
    open(user.env["DOOR"], "w").close()
    events = user.folder(second.run) / "events.jsonl"
    wait_until(lambda: '"finished"' in events.read_text(), "the second run starts by itself, and nobody asks")
    assert user.info(second.run)["status"] == "Completed"


def test_follower_sees_what_run_waits_for(user, gpus):
    root = user.project(wait=WAIT_SCRIPT, train="print('my turn')\n")
    first = user.mlw("submit", "--detach", "--gpus", "all", *variables(user), "wait.py", cwd=root)
    wait_until(lambda: user.info(first.run)["status"] == "Running", "the first runs")
    process = user.start("submit", "--gpus", "1", "train.py", cwd=root)
    line = next(line for line in iter(process.stderr.readline, b"") if line.startswith(b"queued"))
    assert line.decode() == f"queued: GPU 0 held by run {first.run}\n"
    open(user.env["DOOR"], "w").close()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"my turn\n"), err


def test_gpus_key_in_run_configuration(user, gpus):
    root = user.project(train="import os; print(os.environ['CUDA_VISIBLE_DEVICES'])\n")
    place = root / "aml_config" / "local.runconfig"
    place.write_text(place.read_text().replace("#Gpus: 1", "Gpus: 1"))
    done = user.mlw("submit", "-c", "local", "train.py", cwd=root)
    assert done.out == gpus.uuid + "\n", done
    done = user.mlw("submit", "-c", "local", "--gpus", "none", "train.py", cwd=root)
    assert done.out == "\n", done
    place.write_text(place.read_text().replace("Gpus: 1", "Gpus: 0"))
    done = user.mlw("submit", "-c", "local", "train.py", cwd=root)
    assert done.code != 0
    assert "use none for no GPU" in done.err, done


@pytest.mark.parametrize(
    ("typed", "message"), [("0", "0, (with a comma)"), ("1:2", "twice"), ("$(id)", "not a valid GPU request")]
)
def test_usage_errors_are_reported_before_any_action(user, typed, message):
    root = user.project(train="")
    done = user.mlw("submit", "--gpus", typed, "train.py", cwd=root)
    assert done.code == 2, done
    assert message in done.err
    assert "hint: for example: 2, all, none" in done.err
    assert user.runs() == []


def test_more_gpus_than_available(user, gpus):
    root = user.project(train="")
    done = user.mlw("submit", "--gpus", "4", "train.py", cwd=root)
    assert done.code != 0
    assert "the target cannot provide 4 GPUs; it has 1 GPU: 0 NVIDIA H200 (16.0 GiB)" in done.err


def test_remote_queue_continues_without_contact(laptop, machine):
    """The laptop is offline while the run waits; the run starts, and its verdict and samples are fetched later."""
    host = machine()
    host_gpus = FakeGpus(host.home)
    host_gpus.add(f"GPU-{os.urandom(6).hex()}", memory=(16 * GIB, 0), name="NVIDIA H200", utilisation=0)
    for path in [host_gpus.folder, *host_gpus.folder.rglob("*")]:
        os.chown(path, host.uid, host.uid)
    start_file = host.home / ".bashrc"
    exports = "".join(f"export {name}={value}\n" for name, value in host_gpus.env_nvml_only.items())
    start_file.write_text(exports + (start_file.read_text() if start_file.exists() else ""))
    remote = RemoteTarget(laptop, host)
    gpus = ("--env", f"MLW_FAKE_GPUS={host_gpus.state}")
    remote.write(
        "first.py", "import os, time\nwhile not os.path.exists(os.path.expanduser('~/go')): time.sleep(0.02)\n"
    )
    remote.write("second.py", BUSY + "print('my turn')\n")
    first = remote.detach("--gpus", "all", "first.py")
    second = remote.detach("--gpus", "1", *gpus, "second.py")
    wait_until(lambda: remote.laptop.info(second)["status"] == "Queued", "the second run waits")
    assert remote.laptop.info(second)["detail"] == f"GPU 0 held by run {first}"
    host.cut()
    remote.release()
    remote.await_end(second)
    assert remote.laptop.info(second)["status"] == "Queued", "nobody could tell otherwise"
    host.heal()
    done = remote.mlw("logs", "-f", second)
    assert (done.code, done.out) == (0, "my turn\n"), done
    assert "GPU 0: NVIDIA H200, compute capability 9.0" in done.err
    assert "GPU used:  yes – NVIDIA H200" in done.err
    assert (remote.laptop.folder(second) / "gpu.jsonl").read_bytes() == (
        remote.target_folder(second) / "gpu.jsonl"
    ).read_bytes()


def test_cpu_only_build_in_managed_environment_is_the_cause(user, gpus, channel):
    """The packages installed for the run are inspected, not those of the machine."""
    root = user.project(train="import torch, time\ntime.sleep(1.5)\n")
    wheel(root, "torch", "2.9.0+cpu", "here")
    depend(root, channel, "./torch-2.9.0+cpu-py3-none-any.whl")
    enable_managed_environment(root, "local")
    done = user.mlw("submit", "--gpus", "1", *variables(user), "train.py", cwd=root)
    assert done.code == 0, done
    assert "GPU used:  no" in done.err and "torch 2.9.0+cpu" in done.err and "Remedy:" in done.err, done
