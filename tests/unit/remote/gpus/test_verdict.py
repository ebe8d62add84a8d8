"""Every GPU verdict and every cause with its remedy."""

from __future__ import annotations

import pytest

from mlworkbench.explain import symptom, symptom_of
from mlworkbench.remote import engine_errors
from mlworkbench.remote.gpus.log_patterns import find_log_patterns
from mlworkbench.remote.gpus.verdict import decide_verdict, start_line

GIB = 1 << 30
STARTED = {"started": True, "held": True}
TORCH = {"torch": {"version": "2.7.0", "gpu": True, "cuda": "12.6"}}


def gpu(**more):
    facts = {
        "uuid": "GPU-a",
        "index": 0,
        "name": "NVIDIA H200",
        "samples": 60,
        "seconds": 60.0,
        "busy_share": 0.99,
        "mean_utilisation": 93.2,
        "mine_share": 0.98,
        "others_share": 0.0,
        "peak_memory": 71 * GIB,
        "peak_memory_device": 71 * GIB,
        "peak_memory_others": None,
        "memory_total": 140 * GIB,
        "energy_wh": 41.2,
        "throttled_share": 0.0,
        "reasons": {"power cap": 0.9},
        "pids": {"4711": {"name": "train.py", "user": "ada", "peak": 71 * GIB}},
        "lost": None,
    }
    return {**facts, **more}


IDLE = {
    "busy_share": 0.0,
    "mean_utilisation": 0.0,
    "mine_share": 0.0,
    "peak_memory": None,
    "pids": {},
    "energy_wh": 1.0,
}


def rank_pids(*ranks, **more):
    return {str(100 + rank): {"name": "train.py", "user": "ada", "peak": GIB, "rank": rank, **more} for rank in ranks}


CONTEXT = {**IDLE, "mine_share": 0.9, "peak_memory": GIB // 2, "pids": {"7": {"name": "a.py"}}}


def verdict(*gpus, requested="1", facts=STARTED, evidence=None, failed=False, **summary):
    measured = {"gpus": list(gpus), **summary}
    return decide_verdict(
        measured, requested, facts, {"driver": "580.65.06", "frameworks": TORCH, **(evidence or {})}, failed
    )


def test_summary_line_of_a_run_that_used_its_gpu():
    result = verdict(gpu())
    assert result["line"] == (
        "GPU used: yes – NVIDIA H200, 93 % of the time, peak 71 GiB, 41 Wh, by train.py (pid 4711)"
    )
    assert (result["used"], result["diagnosis"], result["reason"]) == ("yes", None, None)
    assert result["gpus"][0]["pids"] == {"4711": {"name": "train.py", "user": "ada", "peak": 71 * GIB}}


@pytest.mark.parametrize(
    ("gpus", "options", "used", "text"),
    [
        ([gpu(), gpu(uuid="GPU-b")], {"requested": "2"}, "yes", "2 of 2, 2 × NVIDIA H200"),
        ([gpu(), gpu(uuid="GPU-b")], {"requested": None}, "yes", "yes – 2 × NVIDIA H200"),
        (
            [gpu(), gpu(index=2, **IDLE), gpu(index=1), gpu(index=3, **IDLE)],
            {"requested": "4"},
            "partly",
            "2 of 4 GPUs were used, idle: GPU 2, GPU 3",
        ),
        (
            [gpu(index=number, mean_utilisation=share) for number, share in enumerate((90.0, 80.0, 30.0, 90.0))],
            {"requested": "all"},
            "yes",
            "; the load was uneven: GPU 3 was busy 90 % of the time, GPU 2 30 %",
        ),
        ([gpu(), gpu(uuid="GPU-b", **IDLE)], {"requested": "2"}, "partly", "1 of 2 GPUs were used, idle: GPU 0"),
        ([gpu(), gpu(uuid="GPU-b", **IDLE)], {"requested": None}, "yes", "NVIDIA H200"),  # nothing requested
        (
            [gpu(index=0, pids=rank_pids(0)), gpu(index=1, pids=rank_pids(1))],
            {"requested": "2", "evidence": {"ranks": [0, 1]}},
            "yes",
            "yes – 2 of 2, 2 × NVIDIA H200, 93 % of the time, peak 71 GiB, 82 Wh, by ranks 0-1",
        ),
        (
            [gpu(index=0, pids=rank_pids(0)), gpu(**{**CONTEXT, "index": 1, "pids": rank_pids(1)})],
            {"requested": "2", "evidence": {"ranks": [0, 1, 2]}},
            "partly",
            "1 of 2 GPUs were used, idle: GPU 1 (rank 1); rank 2 used no GPU",
        ),
        (
            [gpu(index=number, mean_utilisation=90 - 60 * number, pids=rank_pids(number)) for number in range(2)],
            {"requested": "all", "evidence": {"ranks": [0, 1]}},
            "yes",
            "uneven: GPU 0 (rank 0) was busy 90 % of the time, GPU 1 (rank 1) 30 %",
        ),
        (
            [gpu(pids=rank_pids(0, 1, 2, 4))],
            {"evidence": {"ranks": [0, 1, 2, 3, 4]}},
            "yes",
            "by ranks 0-2, 4; rank 3 used no GPU",
        ),
        (
            [gpu(pids=rank_pids(0, 1, load=40.0) | rank_pids(2, load=3.0))],
            {"evidence": {"ranks": [0, 1, 2]}},
            "yes",
            "the load was uneven: rank 1 used 40 % of GPU 0, rank 2 3 %",
        ),
        ([gpu(pids=rank_pids(0, 1, load=40.0))], {"evidence": {"ranks": [0, 1]}}, "yes", "by ranks 0-1"),
        ([gpu(pids=rank_pids(*range(32)))], {"evidence": {"ranks": [*range(40)]}}, "yes", "by ranks 0-31"),
        ([gpu(mean_utilisation=4.04)], {}, "partly", "4.0 % of the time"),
        ([gpu(**IDLE)], {}, "no", "no process of the run opened a GPU"),
        ([gpu(**CONTEXT)], {}, "no", "ran nothing on it"),
        ([gpu(busy_share=0.02, mean_utilisation=0.6, quantiles=[0, 0, 0])], {}, "no", "ran nothing on it"),
        ([gpu(busy_share=0.4, mean_utilisation=1.5, quantiles=[0, 0, 5])], {}, "partly", "1.5 % of the time"),
        ([], {}, "unknown", "before anything could be measured"),
        (
            [gpu(samples=0)],
            {"facts": {"started": True, "problem": "the driver is gone"}},
            "unknown",
            "the driver is gone",
        ),
        ([gpu(mine_share=None, pids={}, peak_memory=None)], {}, "yes", "exclusive use of it"),
        (
            [gpu(mine_share=None, pids={}, peak_memory=None)],
            {"facts": {"started": True, "held": False}},
            "unknown",
            "does not report which processes",
        ),
        ([gpu(**{**IDLE, "mine_share": None})], {}, "no", "idle"),
        ([gpu(**{**CONTEXT, "busy_share": None, "mean_utilisation": None})], {}, "unknown", "its utilization"),
        ([gpu(others_share=0.9)], {"facts": {"started": True}, "requested": None}, "yes", "the figures include theirs"),
        ([gpu(energy_wh=0.042)], {}, "yes", "0.042 Wh"),
        ([gpu(peak_memory=None, energy_wh=None)], {}, "yes", "93 % of the time, by train.py"),
    ],
)
def test_verdicts(gpus, options, used, text):
    result = verdict(*gpus, **options)
    assert result["used"] == used
    assert text in result["line"]


NO_GPU = gpu(**IDLE)
OOM = {"signs": ["out of memory"]}


@pytest.mark.parametrize(
    ("gpus", "options", "cause", "remedy"),
    [
        pytest.param(
            [NO_GPU],
            {"evidence": {"frameworks": {"torch": {"version": "2.7.0+cpu", "gpu": False, "cuda": None}}}},
            "torch 2.7.0+cpu is a CPU-only build",
            "CUDA build of torch (no +cpu",
            id="cpu build of torch",
        ),
        pytest.param(
            [NO_GPU],
            {"evidence": {"frameworks": {"tensorflow": {"version": "2.16.1", "gpu": False, "cuda": None}}}},
            "tensorflow 2.16.1 is a CPU-only build",
            "tensorflow[and-cuda]",
            id="cpu build of tensorflow",
        ),
        pytest.param(
            [NO_GPU],
            {"evidence": {"frameworks": {"jax": {"version": "0.5.0", "gpu": False, "cuda": None}}}},
            "jax 0.5.0 is a CPU-only build",
            "jax[cuda12]",
            id="jax without plugin",
        ),
        pytest.param([NO_GPU], {"evidence": {"signs": ["cpu build"]}}, "has no CUDA", "torch", id="torch reports it"),
        pytest.param(
            [NO_GPU],
            {"evidence": {"driver": "470.82.01"}},
            "torch 2.7.0 is built for CUDA 12.6, which needs driver 525.60.13; the target has 470.82.01",
            "newer driver",
            id="driver too old by versions",
        ),
        pytest.param(
            [NO_GPU],
            {"evidence": {"signs": ["driver too old"]}},
            "580.65.06 is too old",
            "newer driver",
            id="old by log",
        ),
        pytest.param(
            [NO_GPU],
            {"requested": None, "evidence": {"container": True, "container_gpus": None}},
            "the container was started without GPUs: nvidiaDocker is not set",
            "nvidiaDocker: true",
            id="nvidiaDocker missing",
        ),
        pytest.param(
            [],
            {
                "facts": {"started": False},
                "evidence": {"code": engine_errors.NO_GPU},
            },
            "NVIDIA Container Toolkit is missing",
            "nvidia-ctk",
            id="toolkit missing",
        ),
        pytest.param([NO_GPU], {"evidence": {"visible": ""}}, 'CUDA_VISIBLE_DEVICES is ""', "remove it", id="hidden"),
        pytest.param([NO_GPU], {"evidence": {"visible": "-1"}}, '"-1"', "remove it", id="hidden by -1"),
        pytest.param(
            [NO_GPU], {"evidence": {"signs": ["no libcuda"]}}, "libcuda, the driver's library", "driver", id="libcuda"
        ),
        pytest.param(
            [NO_GPU],
            {"evidence": {"signs": ["no libcuda"], "container": True, "container_gpus": ["GPU-a"]}},
            "not found inside the container",
            "nvidiaDocker",
            id="libcuda in a container",
        ),
        pytest.param([NO_GPU], {"evidence": {"signs": ["no cuda libraries"]}}, "CUDA libraries", "and-cuda", id="libs"),
        pytest.param(
            [gpu(**CONTEXT)],
            {"evidence": {"signs": ["no kernel"], "gpus": [{"name": "NVIDIA H200", "capability": "9.0"}]}},
            "no GPU code for NVIDIA H200 (9.0)",
            "compute capability",
            id="no kernel image",
        ),
        pytest.param(
            [gpu(**{**IDLE, "peak_memory_others": 100 * GIB, "peak_memory_device": 100 * GIB})],
            {"requested": None, "evidence": OOM},
            "100.0 GiB of the memory of NVIDIA H200 were used by other processes",
            "--gpus 1",
            id="used by other processes",
        ),
        pytest.param(
            [gpu(**CONTEXT)], {}, "opened the GPU but ran nothing on it", 'model.to("cuda")', id="context only"
        ),
        pytest.param(
            [gpu(mean_utilisation=18.0)],
            {"cpu_share": 0.95},
            "busy only 18 % of the time, in short bursts, while the run kept all CPUs busy",
            "num_workers",
            id="input-bound by processors",
        ),
        pytest.param(
            [gpu(mean_utilisation=18.0)],
            {"busiest": 0.99},
            "one process of the run kept its CPU busy: it waits for input, or its steps are too small",
            "larger batches",
            id="one process",
        ),
        pytest.param(
            [gpu(mean_utilisation=18.0)],
            {"cpu_share": 0.1, "disk_share": 0.6},
            "waited for the disk 60 % of the time",
            "prefetch",
            id="input-bound by the disk",
        ),
        pytest.param(
            [gpu(lost={"at": 30.0, "why": "it has fallen off the bus (GPU is lost)"})],
            {"failed": True},
            "lost during the run (NVIDIA H200: it has fallen off the bus",
            "Xid",
            id="lost",
        ),
        pytest.param(
            [gpu()],
            {"failed": True, "evidence": {"signs": ["lost"], "container": True, "container_gpus": ["GPU-a"]}},
            "as happens after a systemd reload",
            "cgroupfs",
            id="lost in a container",
        ),
        pytest.param(
            [gpu(throttled_share=0.7, reasons={"heat": 0.7})],
            {},
            "throttled for 70 % of the time (heat)",
            "cooling",
            id="throttled",
        ),
        pytest.param(
            [gpu(peak_memory=139 * GIB)],
            {"failed": True, "evidence": OOM},
            "ran out of GPU memory at 139.0 GiB of 140.0 GiB",
            "smaller batch",
            id="out of memory",
        ),
        pytest.param(
            [gpu(), gpu(uuid="GPU-b", **IDLE)],
            {"requested": "2"},
            "1 of the 2 GPUs were never opened",
            "fewer",
            id="one idle",
        ),
        pytest.param(
            [NO_GPU], {"evidence": {"signs": ["no device"]}}, "CUDA found no GPU", "doctor gpu", id="no device"
        ),
        pytest.param([NO_GPU], {"evidence": {"frameworks": {}}}, "no package", "add a framework", id="no framework"),
        pytest.param([NO_GPU], {}, "the script never opened the GPU", "--gpus none", id="never opened"),
        pytest.param([gpu(mean_utilisation=4.0)], {}, "busy only 4 % of the time", "larger batch", id="mostly idle"),
    ],
)
def test_each_cause_with_its_remedy(gpus, options, cause, remedy):
    result = verdict(*gpus, **options)["diagnosis"]
    assert result is not None
    assert cause in result["cause"]
    assert remedy in result["remedy"]
    page = symptom(result["explain"]).name
    assert symptom_of(result["cause"], ("gpu", "containers")) in (page, None), "the page has the message"


@pytest.mark.parametrize("gpus", [[NO_GPU], [gpu(**CONTEXT)]], ids=["never opened", "context only"])
def test_no_remedy_for_a_script_that_failed_early(gpus):
    result = verdict(*gpus, failed=True)["diagnosis"]
    assert (result["cause"], result["remedy"]) == ("the script failed before it used the GPU", None)


def test_evidence_explains_a_failure():
    result = verdict(gpu(**CONTEXT, peak_memory_device=GIB // 2), failed=True, evidence={"signs": ["out of memory"]})[
        "diagnosis"
    ]
    assert "ran out of GPU memory" in result["cause"] and "smaller batch" in result["remedy"]
    result = verdict(NO_GPU, failed=True, evidence={"signs": ["no device"]})["diagnosis"]
    assert result["cause"] == "CUDA found no GPU"


CPU_TORCH = {"torch": {"version": "2.7.0+cpu", "gpu": False, "cuda": None}}


@pytest.mark.parametrize(
    ("evidence", "remedy"),
    [
        ({"frameworks": CPU_TORCH}, "to conda_dependencies.yml"),
        ({"frameworks": CPU_TORCH, "python": "/opt/py/bin/python"}, "for /opt/py/bin/python, which ran the script"),
        ({"frameworks": {}, "python": "python3"}, "install a framework with CUDA for python3, which ran the script"),
        ({"signs": ["no cuda libraries"], "python": "python3"}, "install tensorflow[and-cuda] for python3"),
        (
            {"frameworks": CPU_TORCH, "python": "python3", "container": True, "container_gpus": ["GPU-a"]},
            "use an image (baseDockerImage) with a CUDA build of torch",
        ),
    ],
)
def test_the_remedy_fits_the_environment_of_the_target(evidence, remedy):
    result = verdict(NO_GPU, evidence=evidence)["diagnosis"]
    assert remedy in result["remedy"]
    assert ("conda_dependencies" in result["remedy"]) == ("python" not in evidence)


@pytest.mark.parametrize(
    ("gpus", "options"),
    [
        ([gpu()], {}),
        ([NO_GPU], {"requested": None}),  # nothing indicates that the run needs a GPU
        ([NO_GPU], {"requested": None, "evidence": {"container": True, "frameworks": {}}}),
        ([gpu()], {"failed": True}),  # failed for a reason other than the GPU
        ([gpu(mean_utilisation=30.0)], {"cpu_share": 0.1, "busiest": 0.2, "disk_share": 0.0}),
    ],
)
def test_no_diagnosis_without_evidence(gpus, options):
    assert verdict(*gpus, **options)["diagnosis"] is None


@pytest.mark.parametrize(
    ("log", "signs"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", ["out of memory"]),
        ("OOM when allocating tensor with shape[1,2] and type float on /gpu:0", ["out of memory"]),
        ("AssertionError: Torch not compiled with CUDA enabled", ["cpu build"]),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 10010)", ["driver too old"]),
        ("CUDA driver version is insufficient for CUDA runtime version", ["driver too old"]),
        ("CUDA error: no kernel image is available for execution on the device", ["no kernel"]),
        ("RuntimeError: Found no NVIDIA driver on your system.", ["no libcuda"]),
        ("Could not find cuda drivers on your machine, GPU will not be used.", ["no libcuda"]),
        ("dlerror: libcuda.so.1: cannot open shared object file: No such file or directory", ["no libcuda"]),
        ("Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0", ["no cuda libraries"]),
        ("Cannot dlopen some GPU libraries. Skipping registering GPU devices...", ["no cuda libraries"]),
        ("Successfully opened dynamic library libcudart.so.10.1", []),
        ("RuntimeError: No CUDA GPUs are available", ["no device"]),
        ("Failed to initialize NVML: Unknown Error", ["lost"]),
        ("epoch 1 loss 0.3\nmemory 3 GiB", []),
        ("MemoryError", []),
    ],
)
def test_log_messages_of_frameworks(log, signs):
    assert find_log_patterns(log) == signs


def test_start_line_contains_the_same_facts_as_azure_ml_workbench():
    facts = {"index": 0, "name": "Tesla K80", "capability": "3.7", "memory_clock": 2505, "bus_id": "06C3:00:00.0"}
    line = start_line({**facts, "memory_total": 11.17 * GIB, "memory_free": 11.1 * GIB})
    assert line == (
        "GPU 0: Tesla K80, compute capability 3.7, memory clock 2.5 GHz, PCI bus id 06C3:00:00.0, "
        "total memory 11.17 GiB, free memory 11.10 GiB"
    )
    assert start_line({"index": 1}) == "GPU 1: unknown"
