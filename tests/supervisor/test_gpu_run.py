"""A run with GPUs, from the request to the verdict: the real supervisor with simulated GPUs."""

from __future__ import annotations

import json
import os
import signal

import pytest

from .conftest import Place, alive, end_marked, until
from .gpu_hosts import GIB, LOOKED, GpuHost
from .test_ranks import RANK, mpiexec

SEEN = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('CUDA_DEVICE_ORDER'))\n"
FOREVER = "import time; time.sleep(1000)\n"


@pytest.fixture
def host(tmp_path):
    yield GpuHost(tmp_path, 2)
    end_marked(tmp_path)


def test_a_run_gets_the_gpu_that_it_asked_for_and_uses_it(host):
    folder = host.run("r", SEEN + "use_gpu(memory=3 << 30, utilisation=90)\n" + LOOKED, gpus="1")
    host.start("r")
    ending = host.ended(folder)
    assert ending["ending"] == "succeeded"
    assert (folder / "log").read_text() == f"{host.uuids[0]} PCI_BUS_ID\n"
    assert ending["gpu"]["used"] == "yes", ending["gpu"]
    assert ending["gpu"]["line"].startswith("GPU used: yes – NVIDIA H200, ")
    assert "peak 3.0 GiB" in ending["gpu"]["line"]
    assert "by main.py (pid " in ending["gpu"]["line"]
    (got,) = host.event(folder, "gpus")["gpus"]
    assert (got["uuid"], got["capability"], got["memory_total"]) == (host.uuids[0], "9.0", 16 * GIB)
    assert got["bus_id"]
    assert got["memory_clock"]
    assert not (folder / "lease.json").exists()
    assert (folder / "gpu.jsonl").exists()
    assert json.loads((folder / "spec.json").read_text())["gpus"] == "1", "the spec stays as it was decided"


def test_without_a_request_a_run_sees_all_waits_for_none_and_is_measured(host):
    first = host.run("first", FOREVER, gpus="all")
    host.start("first")
    host.event(first, "started")
    folder = host.run("second", SEEN + "use_gpu(memory=1 << 30, utilisation=50)\n" + LOOKED)
    host.start("second")
    ending = host.ended(folder)
    assert (folder / "log").read_text() == "None None\n"
    assert ending["gpu"]["used"] == "yes"
    assert [event["kind"] for event in host.events(folder)].count("queued") == 0
    visible = host.event(folder, "gpus")
    assert [gpu["uuid"] for gpu in visible["gpus"]] == host.uuids
    assert visible["held"] is False


def test_allocated_gpus_are_those_of_the_verdict(host):
    """A scheduler has allocated them: the run holds no lease, and its script sees the variables of the job."""
    script = SEEN + "use_gpu(memory=3 << 30, utilisation=90)\n" + LOOKED
    folder = host.run("r", script, starter="slurm", scheduler={"gpus": 2})
    job = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert host.call("supervise", "r", "n1", message={"secrets": {}}, env=job)["claimed"]
    ending = host.ended(folder)
    assert (folder / "log").read_text() == "0,1 None\n"
    assert (ending["gpu"]["used"], ending["gpu"]["asked"]) == ("partly", "2"), ending["gpu"]
    assert "1 of 2 GPUs were used" in ending["gpu"]["line"]
    visible = host.event(folder, "gpus")
    assert ([gpu["uuid"] for gpu in visible["gpus"]], visible["held"]) == (host.uuids, True)


def test_none_hides_the_gpus(host):
    folder = host.run("r", SEEN, gpus="none")
    host.start("r")
    ending = host.ended(folder)
    assert (folder / "log").read_text() == " None\n"
    assert ending["gpu"] is None


def test_two_gpus_of_which_one_is_used(host):
    folder = host.run("r", "use_gpu(memory=1 << 30, utilisation=80)\n" + LOOKED, gpus="2")
    host.start("r")
    gpu = host.ended(folder)["gpu"]
    assert gpu["used"] == "partly"
    assert "1 of the 2 GPUs were never opened" in gpu["diagnosis"]["cause"]


def test_ranks_that_make_no_progress_are_reported_and_not_ended(host, tmp_path):
    script = (
        RANK
        + "use_gpu(memory=1 << 30, utilisation=100)\n"
        + LOOKED
        + (
            "print('step 1', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
            "print('step 2', flush=True)\n"
        )
    )
    folder = host.run("r", script + LOOKED, gpus="1", **mpiexec(tmp_path, 2))
    host.start("r", env={"MLW_STALL_TIMEOUT": "1"})
    warned = host.event(folder, "gpu_idle")
    assert warned["warning"].endswith("but it logged and printed nothing"), warned
    (folder / "work" / "go").write_text("")
    assert host.ended(folder)["ending"] == "succeeded"
    assert [event["data"]["warning"] for event in host.events(folder) if event["kind"] == "gpu_idle"][1:] == [None]


def test_one_rank_per_allocated_gpu(host, tmp_path):
    """Each rank uses the GPU of its number, as scripts for torchrun do."""
    script = RANK + (
        "print(rank, os.environ['OMPI_COMM_WORLD_SIZE'], os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['CUDA_VISIBLE_DEVICES'].split(',')[rank]\n"
        "use_gpu(memory=1 << 30, utilisation=90)\n"
    )
    folder = host.run("r", script + LOOKED, gpus="2", **mpiexec(tmp_path, "gpu"))
    host.start("r")
    gpu = host.ended(folder)["gpu"]
    both = ",".join(host.uuids)
    assert sorted((folder / "log").read_text().splitlines()) == [f"0 2 {both}", f"1 2 {both}"]
    assert gpu["line"].startswith("GPU used: yes – 2 of 2, 2 × NVIDIA H200, "), gpu
    assert gpu["line"].endswith("by ranks 0-1"), gpu


def test_ranks_that_share_a_gpu_and_one_that_does_not_use_it(host, tmp_path):
    script = RANK + "if rank != 1: use_gpu(memory=1 << 30, utilisation=30)\n" + LOOKED
    folder = host.run("r", script, gpus="1", **mpiexec(tmp_path, 3))
    host.start("r")
    gpu = host.ended(folder)["gpu"]
    assert "by ranks 0, 2; rank 1 used no GPU" in gpu["line"], gpu
    assert sorted(process["rank"] for process in gpu["gpus"][0]["pids"].values()) == [0, 2]


def test_unused_gpu_is_reported_during_the_run_and_at_the_end(host):
    folder = host.run("r", FOREVER, gpus="1")
    host.start("r", env={"MLW_GPU_PATIENCE": "1"})
    warned = host.event(folder, "gpu_idle")
    assert warned["warning"] == "after 1 s the run has not opened the GPU that it requested"
    host.call("cancel", "r")
    gpu = host.ended(folder)["gpu"]
    assert gpu["line"] == "GPU used: no – no process of the run opened a GPU"
    assert gpu["diagnosis"] is not None


def test_a_context_without_kernels_is_no_use(host):
    folder = host.run("r", "use_gpu(memory=600 << 20, utilisation=0)\n" + LOOKED, gpus="1")
    host.start("r")
    gpu = host.ended(folder)["gpu"]
    assert gpu["used"] == "no"
    assert "ran nothing on it" in gpu["diagnosis"]["cause"]


def test_out_of_gpu_memory_is_reported_with_the_peak(host):
    script = "use_gpu(memory=15 << 30, utilisation=100)\n" + LOOKED
    folder = host.run("r", script + "raise SystemExit('torch.OutOfMemoryError: CUDA out of memory.')", gpus="1")
    host.start("r")
    ending = host.ended(folder)
    assert ending["ending"] == "failed"
    assert ending["gpu"]["diagnosis"]["cause"] == "the script ran out of GPU memory at 15.0 GiB of 16.0 GiB"


def test_hidden_by_a_variable_of_the_users_own(host):
    folder = host.run("r", SEEN + LOOKED, gpus="1")
    spec = json.loads((folder / "spec.json").read_text())
    spec["environment"]["CUDA_VISIBLE_DEVICES"] = ""
    (folder / "spec.json").write_text(json.dumps(spec))
    host.start("r")
    gpu = host.ended(folder)["gpu"]
    assert (folder / "log").read_text() == " PCI_BUS_ID\n"
    assert gpu["used"] == "no"
    assert "CUDA_VISIBLE_DEVICES" in gpu["diagnosis"]["cause"]


def test_a_variable_of_the_users_own_that_is_replaced_is_mentioned(host):
    """A run that requests a GPU gets a free one. Its event records the replaced CUDA_VISIBLE_DEVICES."""
    folder = host.run("r", SEEN, gpus="1")
    spec = json.loads((folder / "spec.json").read_text())
    spec["environment"]["CUDA_VISIBLE_DEVICES"] = "1"
    (folder / "spec.json").write_text(json.dumps(spec))
    host.start("r")
    assert host.event(folder, "gpus")["replaced"] == "1"
    assert host.ended(folder)["ending"] == "succeeded"
    assert (folder / "log").read_text() == f"{host.uuids[0]} PCI_BUS_ID\n"


def test_a_variable_of_the_users_own_is_mentioned_where_all_gpus_are_hidden(host):
    for name, value in (("named", "3"), ("hidden", "-1")):
        folder = host.run(name, SEEN, gpus="none")
        spec = json.loads((folder / "spec.json").read_text())
        spec["environment"]["CUDA_VISIBLE_DEVICES"] = value
        (folder / "spec.json").write_text(json.dumps(spec))
        host.start(name)
        assert host.ended(folder)["ending"] == "succeeded"
        assert (folder / "log").read_text() == " None\n"
        noted = [event["data"]["replaced"] for event in host.events(folder) if event["kind"] == "gpus"]
        assert noted == ([value] if value == "3" else [])


def test_a_script_that_fails_before_it_uses_its_gpu(host):
    folder = host.run("r", LOOKED + "raise ValueError('no such column')", gpus="1")
    host.start("r")
    ending = host.ended(folder)
    assert (ending["ending"], ending["gpu"]["used"]) == ("failed", "no")
    diagnosis = {"cause": "the script failed before it used the GPU", "remedy": None, "explain": "gpu-not-used"}
    assert ending["gpu"]["diagnosis"] == diagnosis


def test_a_gpu_that_is_lost_in_mid_run(host):
    folder = host.run("r", "use_gpu(memory=1 << 30, utilisation=80)\nprint('up')\n" + FOREVER, gpus="1")
    host.start("r")
    until(lambda: b'"own":1073741824' in _bytes(folder / "gpu.jsonl"))
    host.gpus.change(host.uuids[0], error=15)
    until(lambda: b'"lost"' in _bytes(folder / "gpu.jsonl"))
    host.call("cancel", "r")
    gpu = host.ended(folder)["gpu"]
    assert "the GPU was lost during the run" in gpu["diagnosis"]["cause"]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("3", "the target cannot provide 3 GPUs; it has 2 GPUs: 0 NVIDIA H200 (16.0 GiB), 1 NVIDIA H200"),
        ("0,5", "the target has no GPU 5"),
        ("k80", "cannot provide 1 GPU (k80)"),
        ("1:80g", "at least 80 GiB"),
        ("lots and lots!", "invalid GPU request"),
    ],
)
def test_what_can_never_be_is_refused_at_once(host, asked, reason):
    folder = host.run("r", "print('no')", gpus=asked)
    host.start("r")
    ending = host.ended(folder)
    assert ending["ending"] == "could not start"
    assert reason in ending["cause"]
    assert not (folder / "log").exists()


def test_a_driver_in_trouble_is_named(host):
    host.gpus.set(init=18)
    folder = host.run("r", "print('no')", gpus="1")
    host.start("r")
    assert "driver/library version mismatch" in host.ended(folder)["cause"]


def test_hanging_driver_does_not_prevent_cancel(host):
    folder = host.run("r", FOREVER, gpus="1")
    host.start("r")
    until(lambda: (folder / "gpu.jsonl").exists())
    host.gpus.set(delay=60_000)
    size = os.stat(folder / "gpu.jsonl").st_size
    host.call("cancel", "r")
    ending = host.ended(folder)
    assert ending["ending"] == "cancelled"
    assert ending["gpu"]["used"] in ("unknown", "no"), size


def test_a_machine_without_a_gpu_pays_nothing(place):
    folder = place.run("r", FOREVER)
    place.start("r")
    place.event(folder, "started")
    supervisor = place.event(folder, "accepted")["pid"]
    children = _children(supervisor)
    assert len(children) == 1, "the launcher, and nothing that looks for GPUs"
    place.call("cancel", "r")
    assert place.ended(folder)["gpu"] is None


def test_a_request_on_a_machine_without_a_gpu(tmp_path):
    place = Place(tmp_path)
    place.env["MLW_NVML_LIBRARY"] = str(tmp_path / "none.so")
    folder = place.run("r", "print('no')", gpus="1")
    place.start("r")
    assert "the target has no usable GPU" in place.ended(folder)["cause"]


def samples(folder):
    return (folder / "gpu.jsonl").read_bytes().count(b"\n")


def test_a_supervisor_that_takes_over_goes_on_measuring(host):
    using = "use_gpu(memory=1 << 30, utilisation=80)\nopen('using', 'w').close()\n"
    folder = host.run("r", using + FOREVER, gpus="1")
    host.start("r")
    until(lambda: (folder / "work" / "using").exists() and (folder / "gpu.jsonl").exists())
    os.kill(host.event(folder, "accepted")["pid"], signal.SIGKILL)
    until(lambda: host.call("adopt", "r")["state"] == "adopted")
    taken = samples(folder)
    until(lambda: samples(folder) >= taken + 2)  # a sample covers the time since the previous sample
    host.call("cancel", "r")
    assert host.ended(folder)["gpu"]["used"] == "yes"
    assert not (folder / "lease.json").exists()


def test_what_measures_may_be_killed_and_the_run_does_not_care(host):
    folder = host.run("r", FOREVER, gpus="1")
    host.start("r")
    supervisor = host.event(folder, "accepted")["pid"]
    launcher = until(lambda: _read_json(folder / "started.json"))["launcher"]
    until(lambda: (folder / "gpu.jsonl").exists())
    (observer,) = [pid for pid in _children(supervisor) if pid != launcher]
    os.kill(observer, signal.SIGKILL)
    until(lambda: not alive(observer))
    host.call("cancel", "r")
    ending = host.ended(folder)
    assert ending["ending"] == "cancelled"
    assert ending["gpu"]["line"] == "GPU used: unknown – the GPU monitor did not respond"


def test_nothing_that_measures_outlives_its_supervisor(host):
    folder = host.run("r", FOREVER, gpus="1")
    host.start("r")
    supervisor = host.event(folder, "accepted")["pid"]
    launcher = until(lambda: _read_json(folder / "started.json"))["launcher"]
    until(lambda: len(_children(supervisor)) == 2)
    (observer,) = [pid for pid in _children(supervisor) if pid != launcher]
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not alive(observer))
    assert alive(launcher)


def _read_json(path):
    return json.loads(path.read_text()) if path.exists() else None


def _bytes(path):
    return path.read_bytes() if path.exists() else b""


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]
