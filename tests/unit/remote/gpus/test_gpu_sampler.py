"""Sampling of a run's GPUs with a fake NVML library and a simulated clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from mlworkbench.remote.gpus import gpu_sampler
from mlworkbench.remote.gpus.gpu_readings import NvmlSource
from mlworkbench.remote.gpus.gpu_sampler import Sampler, has_gpu_open
from mlworkbench.remote.gpus.nvml import NvmlUnavailable
from mlworkbench.remote.gpus.process_owner import Owner
from mlworkbench.remote.process_usage import ProcessUsage
from tests.machines.network import wait_until
from tests.machines.nvml import USE_GPU, FakeGpus

GIB = 1 << 30
OTHER_PID = 1  # a living process that belongs to no run


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    fake = FakeGpus(tmp_path)
    for name, value in fake.env.items():
        monkeypatch.setenv(name, value)
    fake.add("GPU-a", memory=(16 * GIB, 0), energy=3_600_000)
    return fake


@pytest.fixture
def run():
    """A process that represents the user's script."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    process.stdin.close()


def create_sampler(tmp_path, run, uuids=None):
    return Sampler(uuids, Owner("demo", "/no/such/folder", [run.pid]), str(tmp_path / "gpu.jsonl"))


def rows(tmp_path):
    return [json.loads(line) for line in (tmp_path / "gpu.jsonl").read_text().splitlines()]


def play(sampler, gpus, *steps, uuid="GPU-a", begin=100.0):
    """For each step (seconds, facts), set the facts and sample for these seconds. Return the time at the end."""
    now = begin
    sampler.sample(now)
    for seconds, facts in steps:
        gpus.change(uuid, **facts)
        end = now + seconds
        while now < end:
            now = min(end, now + max(sampler.seconds_until_due(now), 0.01))
            sampler.sample(now)
    return now


class Ranks:
    """Ranks of two processes."""

    def __init__(self, *pids):
        self.pids = pids

    def find(self, pid, table):
        return self.pids.index(pid)


def test_ranks_that_share_a_gpu(gpus, run, tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as second:
        sampler = Sampler(
            None, Owner("r", "/r", [run.pid, second.pid]), str(tmp_path / "gpu.jsonl"), Ranks(run.pid, second.pid)
        )
        for pid, share in ((run.pid, 60), (second.pid, 20)):
            (gpus.claims / str(pid)).write_text(f"GPU-a {GIB} {share}\n")
        play(sampler, gpus, (30, {}))
        (gpu,) = sampler.finish()["gpus"]
        loads = [(gpu["pids"][str(pid)]["rank"], gpu["pids"][str(pid)]["load"]) for pid in (run.pid, second.pid)]
        assert loads == [(0, 60.0), (1, 20.0)]
        second.stdin.close()


def test_a_busy_run(gpus, run, tmp_path):
    sampler = create_sampler(tmp_path, run)
    busy = {"utilisation": 90, "power": 500_000, "temperature": 70, "memory": (16 * GIB, 9 * GIB)}
    busy["process"] = [("compute", run.pid, 8 * GIB)]
    play(sampler, gpus, (10, {}), (30, busy), (0.1, {"energy": 3_600_000 + 36_000_000}))
    summary = sampler.finish()
    (gpu,) = summary["gpus"]
    assert gpu["seconds"] == pytest.approx(40, abs=1.1)
    assert gpu["mean_utilisation"] == pytest.approx(67.5, abs=2)
    assert gpu["busy_share"] == pytest.approx(0.75, abs=0.03) and gpu["mine_share"] == gpu["busy_share"]
    assert (gpu["peak_memory"], gpu["peak_memory_device"], gpu["memory_total"]) == (8 * GIB, 9 * GIB, 16 * GIB)
    assert gpu["energy_wh"] == 10.0 and gpu["max_temperature"] == 70 and gpu["quantiles"][1:] == [90, 90]
    assert gpu["pids"] == {
        str(run.pid): {"name": "python -c", "user": gpu["pids"][str(run.pid)]["user"], "peak": 8 * GIB}
    }
    assert gpu["others"] == {} and gpu["lost"] is None and sampler.has_opened_gpu is True
    last = rows(tmp_path)[-1]["gpus"][0]
    assert (last["uuid"], last["utilisation"], last["own"], last["processes"]) == ("GPU-a", 90, 8 * GIB, 1)


def test_a_run_that_does_not_use_the_gpu(gpus, run, tmp_path):
    sampler = create_sampler(tmp_path, run)
    other = {"process": [("compute", OTHER_PID, 3 * GIB)], "utilisation": 50, "memory": (16 * GIB, 3 * GIB)}
    play(sampler, gpus, (5, other))
    (gpu,) = sampler.finish()["gpus"]
    assert gpu["mine_share"] == 0 and gpu["peak_memory"] is None and gpu["pids"] == {}
    assert gpu["peak_memory_others"] == 3 * GIB and list(gpu["others"]) == ["1"]
    assert gpu["others"]["1"]["user"] and sampler.has_opened_gpu is False


def test_a_context_without_work(gpus, run, tmp_path):
    sampler = create_sampler(tmp_path, run)
    play(sampler, gpus, (5, {"process": [("compute", run.pid, GIB)]}))
    (gpu,) = sampler.finish()["gpus"]
    assert gpu["mine_share"] > 0.9 and gpu["busy_share"] == 0


def test_unreported_values_stay_unknown(gpus, run, tmp_path):
    gpus.change("GPU-a", lacks=["utilisation", "power", "energy", "compute", "temperature", "reasons", "pcie"])
    sampler = create_sampler(tmp_path, run)
    play(sampler, gpus, (30, {}))
    (gpu,) = sampler.finish()["gpus"]
    unknown = "busy_share mean_utilisation quantiles mine_share peak_memory energy_wh max_temperature mean_power"
    for name in f"{unknown} throttled_share pcie_rx pcie_tx nvlink_rx".split():
        assert gpu[name] is None, name
    assert gpu["peak_memory_device"] == 0 and gpu["lost"] is None and sampler.has_opened_gpu is None
    assert rows(tmp_path)[0]["gpus"][0]["own"] is None


def test_energy_without_a_meter_is_computed_from_power(gpus, run, tmp_path):
    gpus.change("GPU-a", lacks=["energy"], power=360_000)
    sampler = create_sampler(tmp_path, run)
    play(sampler, gpus, (100, {}))
    assert sampler.finish()["gpus"][0]["energy_wh"] == pytest.approx(10, rel=0.02)


def test_a_card_that_is_lost_during_the_run(gpus, run, tmp_path):
    gpus.add("GPU-b")
    sampler = create_sampler(tmp_path, run)
    play(sampler, gpus, (20, {"utilisation": 90, "process": [("compute", run.pid, GIB)]}), (10, {"error": 15}))
    lost, healthy = sampler.finish()["gpus"]
    assert lost["lost"]["at"] == pytest.approx(20, abs=1.1) and "fallen off the bus" in lost["lost"]["why"]
    assert lost["mean_utilisation"] > 80 and lost["seconds"] < 21 and lost["mine_share"] > 0.9
    assert healthy["lost"] is None and healthy["seconds"] > 28
    assert rows(tmp_path)[-1]["gpus"][0] == {"uuid": "GPU-a", "lost": lost["lost"]["why"]}


def test_a_card_that_is_missing_at_the_start(gpus, run, tmp_path):
    sampler = create_sampler(tmp_path, run, ["GPU-x", "GPU-a"])
    play(sampler, gpus, (5, {}))
    assert [(gpu["uuid"], bool(gpu["lost"])) for gpu in sampler.finish()["gpus"]] == [("GPU-a", False), ("GPU-x", True)]


def test_only_the_runs_own_gpus(gpus, run, tmp_path):
    gpus.add("GPU-b")
    sampler = create_sampler(tmp_path, run, ["GPU-b"])
    sampler.sample(1.0)
    assert [gpu["uuid"] for gpu in sampler.finish()["gpus"]] == ["GPU-b"]


def test_heat_counts_as_throttling_and_a_power_cap_does_not(gpus, run, tmp_path):
    sampler = create_sampler(tmp_path, run)
    play(sampler, gpus, (10, {"utilisation": 100, "reasons": 0x4}), (10, {"reasons": 0x24}), (10, {"utilisation": 0}))
    (gpu,) = sampler.finish()["gpus"]
    assert gpu["throttled_share"] == pytest.approx(0.5, abs=0.05)
    assert gpu["reasons"]["power cap"] == 1.0 and gpu["reasons"]["heat"] == gpu["throttled_share"]


def test_long_runs_are_sampled_rarely_and_expensive_metrics_more_rarely(gpus, run, tmp_path, monkeypatch):
    calls = []
    sampler = create_sampler(tmp_path, run)
    source = sampler._source
    for name in ("read", "energy", "traffic"):
        real = getattr(source, name)
        monkeypatch.setattr(
            source, name, lambda *arguments, real=real, name=name: (calls.append(name), real(*arguments))[1]
        )
    play(sampler, gpus, (4 * 3600, {}))
    samples = calls.count("read")
    assert 20 + 590 + 1320 + 480 - 30 < samples < 20 + 590 + 1320 + 480 + 30
    assert calls.count("energy") <= 241 and calls.count("traffic") <= 4 * 360
    times = [row["t"] for row in rows(tmp_path)]
    assert len(times) == samples and times == sorted(times)
    assert os.path.getsize(tmp_path / "gpu.jsonl") < 600_000


def test_nvidia_smi_instead_of_nvml(gpus, run, tmp_path, monkeypatch):
    monkeypatch.setenv("MLW_NVML_LIBRARY", gpus.env_smi_only["MLW_NVML_LIBRARY"])
    gpus.change("GPU-a", utilisation=80, process=[("compute", run.pid, 2 * GIB)])
    sampler = create_sampler(tmp_path, run)
    sampler.sample(1.0)
    assert not sampler.sample(30.0) and sampler.sample(62.0)
    (gpu,) = sampler.finish()["gpus"]
    assert (gpu["samples"], gpu["mean_utilisation"], gpu["peak_memory"]) == (2, 80, 2 * GIB)
    assert gpu["throttled_share"] is None


def test_no_usable_driver(gpus, run, tmp_path, monkeypatch):
    gpus.set(init=9)
    with pytest.raises(NvmlUnavailable, match="the NVIDIA driver is not loaded"):
        create_sampler(tmp_path, run)


def test_a_full_disk(gpus, run, tmp_path):
    sampler = Sampler(None, Owner("demo", "/x", [run.pid]), "/dev/full")
    play(sampler, gpus, (5, {"utilisation": 50}))
    assert sampler.finish()["gpus"][0]["mean_utilisation"] > 45


def test_in_a_container_with_its_own_pid_namespace(gpus, run, tmp_path, monkeypatch):
    """NVML reports pids of the host, which are meaningless in the container: processes with an open device count."""
    source = NvmlSource(None)
    monkeypatch.delenv("MLW_NVML_LIBRARY")
    monkeypatch.setattr(gpu_sampler, "open_source", lambda uuids: source)
    monkeypatch.setattr(gpu_sampler, "sees_host_pids", lambda: False)
    opened = set()
    monkeypatch.setattr(gpu_sampler, "has_gpu_open", opened.__contains__)
    gpus.change("GPU-a", process=[("compute", run.pid, GIB)])  # a host process with the same PID
    sampler = create_sampler(tmp_path, run)
    play(sampler, gpus, (5, {}))
    assert sampler.has_opened_gpu is False
    opened.add(run.pid)
    play(sampler, gpus, (5, {}), begin=105.0)
    summary = sampler.finish()
    assert summary["host"] is False and summary["gpus"][0]["peak_memory"] is None
    assert sampler.has_opened_gpu is True and list(summary["gpus"][0]["pids"]) == [str(run.pid)]


def test_processes_with_an_open_gpu_device(tmp_path, monkeypatch):
    for pid, device in ((5, "/dev/nvidia0"), (6, "/dev/nvidiactl"), (7, "/dev/nvidia-uvm")):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd" / "3").symlink_to(device)
    (tmp_path / "5" / "fd" / "2").touch()  # readlink fails, as for a file that was closed after it was listed
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: sorted(listdir(path)))
    assert [has_gpu_open(pid, str(tmp_path)) for pid in (5, 6, 7, 8)] == [True, False, False, False]


def test_cpu_usage_counts_children_once(tmp_path):
    """A child's CPU time is in its own stat file, and after the child is reaped, in the stat file of its parent."""

    def write(pid, ticks_used, ticks_of_children, children=""):
        folder = tmp_path / str(pid) / "task" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        fields = ["R", "1"] + ["0"] * 9 + [str(ticks_used), "0", str(ticks_of_children), "0"] + ["0"] * 30
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (x) {' '.join(fields)}\n")
        (folder / "children").write_text(children)

    ticks = os.sysconf("SC_CLK_TCK")
    usage = ProcessUsage(lambda: [7], str(tmp_path))
    write(7, 0, 0, "8")
    write(8, 0, 0)
    usage.sample(0.0)
    write(8, 10 * ticks, 0)
    usage.sample(10.0)
    write(7, 5 * ticks, 10 * ticks)
    for name in ("stat", "task/8/children"):
        (tmp_path / "8" / name).unlink()
    usage.sample(20.0)
    summary = usage.summary()
    assert summary["cpu_cores"] == pytest.approx(15 / 20) and summary["busiest"] == pytest.approx((10 + 5) / 20)
    assert summary["disk_share"] == 0 and 0 < summary["cpu_share"] <= 1
    assert ProcessUsage(list, str(tmp_path)).summary()["cpu_share"] is None


def test_a_script_that_claims_a_gpu_is_detected(gpus, run, tmp_path):
    """Check ``use_gpu``, a helper of other tests with which a real process appears to use the GPU."""
    code = USE_GPU + "use_gpu(memory=1 << 30, utilisation=70)\ninput()\n"
    script = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        wait_until(lambda: os.listdir(gpus.claims) == [str(script.pid)], "the claim")
        sampler = create_sampler(tmp_path, script)
        sampler.sample(1.0)
        (gpu,) = sampler.finish()["gpus"]
        assert (gpu["peak_memory"], gpu["mean_utilisation"]) == (GIB, 70)
    finally:
        script.kill()
        script.wait()
        script.stdin.close()
