"""What a run did with its GPUs, from a library that plays NVML; the clock is ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from mlworkbench.remote.gpus import sampler as module
from mlworkbench.remote.gpus.nvml import NoNvml
from mlworkbench.remote.gpus.sampler import Sampler, opens_gpu
from mlworkbench.remote.gpus.source import NvmlSource
from mlworkbench.remote.gpus.whose import Owner
from mlworkbench.remote.process_usage import Effort
from tests.machines.network import wait_until
from tests.machines.nvml import USE_GPU, FakeGpus

GIB = 1 << 30
STRANGER = 1  # lives, and is nobody's


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    made = FakeGpus(tmp_path)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    made.add("GPU-a", memory=(16 * GIB, 0), energy=3_600_000)
    return made


@pytest.fixture
def run():
    """A process that stands for the user's script."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    process.stdin.close()


def sampler(tmp_path, run, uuids=None):
    return Sampler(uuids, Owner("demo", "/no/such/folder", [run.pid]), str(tmp_path / "gpu.jsonl"))


def rows(tmp_path):
    return [json.loads(line) for line in (tmp_path / "gpu.jsonl").read_text().splitlines()]


def play(watch, gpus, *steps, uuid="GPU-a", begin=100.0):
    """Each step is (seconds, facts): the facts hold for so long. The clock after the last."""
    now = begin
    watch.tick(now)
    for seconds, facts in steps:
        gpus.change(uuid, **facts)
        end = now + seconds
        while now < end:
            now = min(end, now + max(watch.wait(now), 0.01))
            watch.tick(now)
    return now


def test_a_run_that_works(gpus, run, tmp_path):
    watch = sampler(tmp_path, run)
    busy = {"utilisation": 90, "power": 500_000, "temperature": 70, "memory": (16 * GIB, 9 * GIB)}
    busy["process"] = [("compute", run.pid, 8 * GIB)]
    play(watch, gpus, (10, {}), (30, busy), (0.1, {"energy": 3_600_000 + 36_000_000}))
    found = watch.finish()
    (gpu,) = found["gpus"]
    assert gpu["seconds"] == pytest.approx(40, abs=1.1)
    assert gpu["mean_utilisation"] == pytest.approx(67.5, abs=2)
    assert gpu["busy_share"] == pytest.approx(0.75, abs=0.03) and gpu["mine_share"] == gpu["busy_share"]
    assert (gpu["peak_memory"], gpu["peak_memory_device"], gpu["memory_total"]) == (8 * GIB, 9 * GIB, 16 * GIB)
    assert gpu["energy_wh"] == 10.0 and gpu["max_temperature"] == 70 and gpu["quantiles"][1:] == [90, 90]
    assert gpu["pids"] == {
        str(run.pid): {"name": "python -c", "user": gpu["pids"][str(run.pid)]["user"], "peak": 8 * GIB}
    }
    assert gpu["others"] == {} and gpu["lost"] is None and watch.opened is True
    last = rows(tmp_path)[-1]["gpus"][0]
    assert (last["uuid"], last["utilisation"], last["own"], last["processes"]) == ("GPU-a", 90, 8 * GIB, 1)


def test_a_run_that_does_nothing_with_it(gpus, run, tmp_path):
    watch = sampler(tmp_path, run)
    stranger = {"process": [("compute", STRANGER, 3 * GIB)], "utilisation": 50, "memory": (16 * GIB, 3 * GIB)}
    play(watch, gpus, (5, stranger))
    (gpu,) = watch.finish()["gpus"]
    assert gpu["mine_share"] == 0 and gpu["peak_memory"] is None and gpu["pids"] == {}
    assert gpu["peak_memory_others"] == 3 * GIB and list(gpu["others"]) == ["1"]
    assert gpu["others"]["1"]["user"] and watch.opened is False


def test_a_context_and_nothing_more(gpus, run, tmp_path):
    watch = sampler(tmp_path, run)
    play(watch, gpus, (5, {"process": [("compute", run.pid, GIB)]}))
    (gpu,) = watch.finish()["gpus"]
    assert gpu["mine_share"] > 0.9 and gpu["busy_share"] == 0


def test_what_the_card_does_not_tell_stays_unknown(gpus, run, tmp_path):
    gpus.change("GPU-a", lacks=["utilisation", "power", "energy", "compute", "temperature", "reasons", "pcie"])
    watch = sampler(tmp_path, run)
    play(watch, gpus, (30, {}))
    (gpu,) = watch.finish()["gpus"]
    unknown = "busy_share mean_utilisation quantiles mine_share peak_memory energy_wh max_temperature mean_power"
    for name in f"{unknown} throttled_share pcie_rx pcie_tx nvlink_rx".split():
        assert gpu[name] is None, name
    assert gpu["peak_memory_device"] == 0 and gpu["lost"] is None and watch.opened is None
    assert rows(tmp_path)[0]["gpus"][0]["own"] is None


def test_energy_of_a_card_without_a_meter_comes_from_its_power(gpus, run, tmp_path):
    gpus.change("GPU-a", lacks=["energy"], power=360_000)
    watch = sampler(tmp_path, run)
    play(watch, gpus, (100, {}))
    assert watch.finish()["gpus"][0]["energy_wh"] == pytest.approx(10, rel=0.02)


def test_a_card_that_is_lost_on_the_way(gpus, run, tmp_path):
    gpus.add("GPU-b")
    watch = sampler(tmp_path, run)
    play(watch, gpus, (20, {"utilisation": 90, "process": [("compute", run.pid, GIB)]}), (10, {"error": 15}))
    lost, well = watch.finish()["gpus"]
    assert lost["lost"]["at"] == pytest.approx(20, abs=1.1) and "fallen off the bus" in lost["lost"]["why"]
    assert lost["mean_utilisation"] > 80 and lost["seconds"] < 21 and lost["mine_share"] > 0.9
    assert well["lost"] is None and well["seconds"] > 28
    assert rows(tmp_path)[-1]["gpus"][0] == {"uuid": "GPU-a", "lost": lost["lost"]["why"]}


def test_a_card_that_was_never_there(gpus, run, tmp_path):
    watch = sampler(tmp_path, run, ["GPU-x", "GPU-a"])
    play(watch, gpus, (5, {}))
    assert [(one["uuid"], bool(one["lost"])) for one in watch.finish()["gpus"]] == [("GPU-a", False), ("GPU-x", True)]


def test_only_the_runs_own_gpus(gpus, run, tmp_path):
    gpus.add("GPU-b")
    watch = sampler(tmp_path, run, ["GPU-b"])
    watch.tick(1.0)
    assert [one["uuid"] for one in watch.finish()["gpus"]] == ["GPU-b"]


def test_a_power_cap_is_no_throttling_and_heat_is(gpus, run, tmp_path):
    watch = sampler(tmp_path, run)
    play(watch, gpus, (10, {"utilisation": 100, "reasons": 0x4}), (10, {"reasons": 0x24}), (10, {"utilisation": 0}))
    (gpu,) = watch.finish()["gpus"]
    assert gpu["throttled_share"] == pytest.approx(0.5, abs=0.05)
    assert gpu["reasons"]["power cap"] == 1.0 and gpu["reasons"]["heat"] == gpu["throttled_share"]


def test_long_runs_are_looked_at_rarely_and_dear_questions_more_rarely(gpus, run, tmp_path, monkeypatch):
    asked = []
    watch = sampler(tmp_path, run)
    source = watch._source
    for name in ("read", "energy", "traffic"):
        real = getattr(source, name)
        monkeypatch.setattr(source, name, lambda *words, real=real, name=name: (asked.append(name), real(*words))[1])
    play(watch, gpus, (4 * 3600, {}))
    looks = asked.count("read")
    assert 20 + 590 + 1320 + 480 - 30 < looks < 20 + 590 + 1320 + 480 + 30
    assert asked.count("energy") <= 241 and asked.count("traffic") <= 4 * 360
    times = [row["t"] for row in rows(tmp_path)]
    assert len(times) == looks and times == sorted(times)
    assert os.path.getsize(tmp_path / "gpu.jsonl") < 600_000


def test_nvidia_smi_in_place_of_nvml(gpus, run, tmp_path, monkeypatch):
    monkeypatch.setenv("MLW_NVML_LIBRARY", gpus.env_smi_only["MLW_NVML_LIBRARY"])
    gpus.change("GPU-a", utilisation=80, process=[("compute", run.pid, 2 * GIB)])
    watch = sampler(tmp_path, run)
    watch.tick(1.0)
    assert not watch.tick(30.0) and watch.tick(62.0)
    (gpu,) = watch.finish()["gpus"]
    assert (gpu["samples"], gpu["mean_utilisation"], gpu["peak_memory"]) == (2, 80, 2 * GIB)
    assert gpu["throttled_share"] is None


def test_nobody_to_ask(gpus, run, tmp_path, monkeypatch):
    gpus.set(init=9)
    with pytest.raises(NoNvml, match="the NVIDIA driver is not loaded"):
        sampler(tmp_path, run)


def test_a_disk_that_is_full(gpus, run, tmp_path):
    watch = Sampler(None, Owner("demo", "/x", [run.pid]), "/dev/full")
    play(watch, gpus, (5, {"utilisation": 50}))
    assert watch.finish()["gpus"][0]["mean_utilisation"] > 45


def test_in_a_container_with_numbers_of_its_own(gpus, run, tmp_path, monkeypatch):
    """NVML tells pids of the machine around it, which mean nothing there: who holds the card open counts."""
    source = NvmlSource(None)
    monkeypatch.delenv("MLW_NVML_LIBRARY")
    monkeypatch.setattr(module, "open_source", lambda uuids: source)
    monkeypatch.setattr(module, "sees_host", lambda: False)
    opened = set()
    monkeypatch.setattr(module, "opens_gpu", opened.__contains__)
    gpus.change("GPU-a", process=[("compute", run.pid, GIB)])  # by chance another's number on that machine
    watch = sampler(tmp_path, run)
    play(watch, gpus, (5, {}))
    assert watch.opened is False
    opened.add(run.pid)
    play(watch, gpus, (5, {}), begin=105.0)
    summary = watch.finish()
    assert summary["host"] is False and summary["gpus"][0]["peak_memory"] is None
    assert watch.opened is True and list(summary["gpus"][0]["pids"]) == [str(run.pid)]


def test_who_holds_a_card_open(tmp_path):
    for pid, device in ((5, "/dev/nvidia0"), (6, "/dev/nvidiactl"), (7, "/dev/nvidia-uvm")):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd" / "3").symlink_to(device)
    assert [opens_gpu(pid, str(tmp_path)) for pid in (5, 6, 7, 8)] == [True, False, False, False]


def test_the_effort_of_a_run_counts_children_once(tmp_path):
    """A process that forks: the child's time is in its own account, then, once it is buried, in its parent's."""

    def write(pid, own, buried, children=""):
        place = tmp_path / str(pid) / "task" / str(pid)
        place.mkdir(parents=True, exist_ok=True)
        fields = ["R", "1"] + ["0"] * 9 + [str(own), "0", str(buried), "0"] + ["0"] * 30
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (x) {' '.join(fields)}\n")
        (place / "children").write_text(children)

    ticks = os.sysconf("SC_CLK_TCK")
    effort = Effort(lambda: [7], str(tmp_path))
    write(7, 0, 0, "8")
    write(8, 0, 0)
    effort.look(0.0)
    write(8, 10 * ticks, 0)
    effort.look(10.0)
    write(7, 5 * ticks, 10 * ticks)
    for name in ("stat", "task/8/children"):
        (tmp_path / "8" / name).unlink()
    effort.look(20.0)
    found = effort.summary()
    assert found["cpu_cores"] == pytest.approx(15 / 20) and found["busiest"] == pytest.approx((10 + 5) / 20)
    assert found["disk_share"] == 0 and 0 < found["cpu_share"] <= 1
    assert Effort(list, str(tmp_path)).summary()["cpu_share"] is None


def test_a_script_that_claims_a_gpu_is_seen(gpus, run, tmp_path):
    """What other tests rely on: a real process that looks as if it computed."""
    code = USE_GPU + "use_gpu(memory=1 << 30, utilisation=70)\ninput()\n"
    script = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        wait_until(lambda: os.listdir(gpus.claims) == [str(script.pid)], "the claim")
        watch = sampler(tmp_path, script)
        watch.tick(1.0)
        (gpu,) = watch.finish()["gpus"]
        assert (gpu["peak_memory"], gpu["mean_utilisation"]) == (GIB, 70)
    finally:
        script.kill()
        script.wait()
        script.stdin.close()
