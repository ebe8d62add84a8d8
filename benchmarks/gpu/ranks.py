"""Run several processes that share one NVIDIA GPU, and check the verdict by rank, causes, and retries. Usage:

    python3 benchmarks/gpu/ranks.py --out FOLDER [--wheels FOLDER] [--only shared,idle,…]

Python must have PyTorch with CUDA. Nothing is downloaded: --wheels names a folder with the dependencies of mlworkbench,
matplotlib, and numpy. The processes of a training communicate through Gloo, because NCCL refuses two on one GPU. Also
measures what logging from several ranks costs: steps of one training, in blocks in which no rank, rank 0, or all ranks
log. Writes FOLDER/ranks.md and ranks.json, and exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prove import Bench  # benchmarks/gpu/prove.py

RANKS = 4
MODES = ("none", "rank 0", "all")  # ranks that log

# Trains in all ranks. The blocks of each mode have equal numbers of steps, and rank 0 measures them.
COST = """
import hashlib, json, os, statistics, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import mlworkbench

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
model = DistributedDataParallel(torch.nn.Sequential(*layers, *layers, torch.nn.Linear(WIDTH, 10)).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
torch.manual_seed(rank)
batch = torch.randn(BATCH, WIDTH, device=device)

def step(number, logs):
    optimizer.zero_grad()
    loss = model(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    value = loss.item()
    if logs:
        begun = time.perf_counter_ns()
        mlworkbench.log("loss", value, step=number)
        calls.append(time.perf_counter_ns() - begun)

def block(mode):
    global number
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(steps):
        number += 1
        step(number, mode == "all" or mode == "rank 0" and rank == 0)
    dist.barrier()
    return (time.perf_counter() - begun) / steps

modes, calls, number, steps = ["none", "rank 0", "all"], [], 0, 20
mlworkbench.log("begin", 0.0)
block("all")
many = torch.tensor(max(5, int(SECONDS / block("none"))))
dist.broadcast(many, 0)
steps = int(many)
calls.clear()
times = {mode: [] for mode in modes}
for turn in range(TURNS):
    for mode in modes[turn % 3:] + modes[:turn % 3]:
        times[mode].append(block(mode))
weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach().cpu().numpy().tobytes()
digests = [None] * size
dist.all_gather_object(digests, hashlib.sha256(weights).hexdigest())
if rank == 0:
    with open("outputs/times.json", "w") as file:
        json.dump({"times": times, "steps": steps, "call_us": statistics.mean(calls) / 1e3}, file)
    print("equal weights" if len(set(digests)) == 1 else "different weights", flush=True)
dist.destroy_process_group()
"""
# Each rank computes on the GPU for a share of the time, which its argument at the position of the rank sets.
LOADS = """
import os, sys, time, torch
rank = int(os.environ["RANK"])
share, seconds = float(sys.argv[1].split(",")[rank]), float(sys.argv[2])
begun = time.time()
print("rank %d\\n" % rank, end="", flush=True)
if share and torch.cuda.is_available():
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
while time.time() - begun < seconds:
    started = time.perf_counter()
    while share and torch.cuda.is_available() and time.perf_counter() - started < 0.1 * share:
        for _ in range(20):
            x = torch.tanh(x @ x)
        torch.cuda.synchronize()
    time.sleep(0.1 * (1 - share))
"""
# Trains with checkpoints. Rank 2 of the first attempt fails as its argument says, while the others wait for it.
FAILS = """
import os, signal, sys, time
import torch, torch.distributed as dist
from mlworkbench import checkpoint_dir, log

dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), int(os.environ["MLW_ATTEMPT"])
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
path = os.path.join(checkpoint_dir(), "state.pt")
state = {"step": 0, "sum": torch.zeros(8, device=device)}
if os.path.exists(path):
    state = torch.load(path, map_location=device)
dist.barrier()
if rank == 0:
    print("attempt", attempt, "starts at step", state["step"], flush=True)
for step in range(state["step"] + 1, 11):
    part = torch.full((8,), float(step * (rank + 1)), device=device)
    if step == 6 and attempt == 1 and rank == 2:
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if sys.argv[1] == "memory":
            kept = [torch.empty(1 << 40, dtype=torch.uint8, device=device)]
        raise ValueError("bad batch %d" % step)
    dist.all_reduce(part)
    state = {"step": step, "sum": state["sum"] + part}
    if rank == 0:
        log("sum", float(state["sum"][0]), step=step)
        torch.save(state, path + ".new")
        os.replace(path + ".new", path)
    dist.barrier()
sys.stdout.write("rank %d sum %s\\n" % (rank, float(state["sum"][0])))  # in one piece: all ranks write to one log
dist.destroy_process_group()
"""
_SUMMARY = ("Status", "Cause", "Attempts", "GPU", "Remedy", "Metrics", "   ")


class Results:
    """The project of the checks, and the text about each run."""

    def __init__(self, bench: Bench, turns: int) -> None:
        self.bench = bench
        self.lines: list[str] = []
        self.turns = turns

    def prepare(self) -> None:
        bench = self.bench
        done = bench.mlw("project", "create", "--name", "ranks")
        assert done.returncode == 0, done.stderr
        bench.project = bench.place / "ranks"
        use_this_python(bench.project)
        cost = COST.replace("TURNS", str(self.turns)).replace("SECONDS", "0.5")
        cost = cost.replace("WIDTH", "1024").replace("BATCH", "4096")
        for name, text in (("cost", cost), ("loads", LOADS), ("fails", FAILS)):
            (bench.project / f"{name}.py").write_text(text)

    def submit(self, *arguments: str, target: str = "local", count: int = RANKS, **env: str) -> dict[str, Any]:
        """Submit a run of several processes, and return its record."""
        options = ["-c", target, "--launcher", "torchrun", "--processes", str(count)]
        options += ["--env", "OMP_NUM_THREADS=4", *arguments]  # torchrun warns if it is not set
        begun = time.time()
        done = self.bench.mlw("submit", *options, env=env)
        record = self.bench.record(done.stdout, done.stderr, time.time() - begun)
        summary = done.stderr.split("Execution Summary")[-1].splitlines()
        shown = [line for line in summary if line.startswith(_SUMMARY)]
        self.lines += ["```text", f"$ mlw submit {' '.join(options)}", *done.stdout.splitlines()[-12:], *shown]
        self.lines += ["```", ""]
        return record


def use_this_python(project: Path) -> None:
    compute = project / "aml_config" / "local.compute"
    text = compute.read_text().replace("\nuserManagedEnvironment: false\n", "\n")
    compute.write_text(f"{text}\nuserManagedEnvironment: true\npythonLocation: {sys.executable}\n")


def gpu_line(record: dict[str, Any]) -> str:
    return str((record.get("gpu") or {}).get("line"))


def last_lines(record: dict[str, Any], count: int) -> str:
    return " / ".join(record["log"].splitlines()[-count:])


def loads(record: dict[str, Any]) -> dict[int, float | None]:
    """Return the mean utilization in percent by each rank."""
    gpus = (record.get("gpu") or {}).get("gpus") or [{}]
    return {facts.get("rank"): facts.get("load") for facts in (gpus[0].get("pids") or {}).values()}


# -- checks --------------------------------------------------------------------------------------------------------


def shared(results: Results) -> None:
    """All ranks train on the GPU; logging is measured."""
    bench, record = results.bench, results.submit("--gpus", "1", "cost.py")
    used = (record.get("gpu") or {}).get("used") == "yes" and f"by ranks 0-{RANKS - 1}" in gpu_line(record)
    bench.check(f"{RANKS} ranks train on one GPU", "GPU used: yes, by all ranks", gpu_line(record), used)
    bench.check("weights of all ranks", "equal", last_lines(record, 1), "equal weights" in record["log"])
    bench.check("utilization by rank", "reported", loads(record), bool(loads(record)))
    times = json.loads((bench.folder(record["run"]) / "work" / "outputs" / "times.json").read_text())
    bench.data["cost"] = times
    several = compare(times["times"]["all"], times["times"]["none"])
    one = compare(times["times"]["rank 0"], times["times"]["none"])
    extra = compare(times["times"]["all"], times["times"]["rank 0"])
    step = statistics.median(times["times"]["none"]) * 1e3
    text = "; ".join(
        f"{name} {middle * 100:+.2f} % ± {error * 100:.2f}"
        for name, (middle, error) in (
            ("rank 0 beside none", one),
            ("all beside none", several),
            ("all beside rank 0", extra),
        )
    )
    text += f"; a step takes {step:.2f} ms, a call {times['call_us']:.1f} µs; {results.turns} blocks per mode"
    bench.check(
        "cost of logging each step", "several ranks within noise of one", text, extra[0] <= max(0.005, 2 * extra[1])
    )


def compare(some: list[float], others: list[float]) -> tuple[float, float]:
    """Return the median of the slow-down in neighboring blocks, and its standard error."""
    ratios = [a / b - 1 for a, b in zip(some, others, strict=True)]
    return statistics.median(ratios), 1.253 * statistics.stdev(ratios) / len(ratios) ** 0.5


def idle(results: Results) -> None:
    record = results.submit("--gpus", "1", "loads.py", "0.9,0.9,0.9,0", "8")
    line = gpu_line(record)
    results.bench.check("one of 4 ranks leaves the GPU alone", "rank 3 is named", line, "rank 3 used no GPU" in line)


def uneven(results: Results) -> None:
    record = results.submit("--gpus", "1", "loads.py", "0.9,0.02,0.02,0.02", "25")
    line, known = gpu_line(record), [load for load in loads(record).values() if load is not None]
    wanted = "rank 0 is named as the busiest" if known else "the driver does not report the load of processes"
    right = "the load was uneven: rank 0 used" in line if known else "uneven" not in line
    results.bench.check("one rank does most of the work", wanted, f"{line}; by rank: {loads(record)}", right)


def stalled(results: Results) -> None:
    """All ranks keep the GPU busy but log nothing, as in a collective operation that hangs."""
    record = results.submit("--gpus", "1", "loads.py", "1,1,1,1", "25", MLW_STALL_TIMEOUT="10")
    warnings = [line for line in record["said"].splitlines() if "all GPUs of the run have been busy" in line]
    right = len(warnings) == 1 and record["status"] == "Completed"
    results.bench.check("ranks that make no progress", "one warning; the run continues", " / ".join(warnings), right)


def retried(results: Results) -> None:
    record = results.submit("--gpus", "1", "--retries", "1", "--retry-delay", "0.1s", "fails.py", "exception")
    causes = [str(attempt.get("cause")) for attempt in record.get("attempts") or []]
    expected = "rank 2 failed: ValueError: bad batch 6 (fails.py:"
    results.bench.check("an exception in rank 2", expected, causes, len(causes) == 1 and causes[0].startswith(expected))
    ends = re.findall(r"rank \d sum (\S+)", record["log"])
    right = record["status"] == "Completed" and ends == ["550.0"] * RANKS
    right = right and "attempt 2 starts at step 5" in record["log"]
    seen = last_lines(record, RANKS + 1)
    results.bench.check("the second attempt continues at step 5", "550.0 in all ranks", seen, right)


def killed(results: Results) -> None:
    record = results.submit("--gpus", "1", "fails.py", "killed")
    cause = str(record.get("cause"))
    results.bench.check(
        "SIGKILL for rank 2", "rank 2 and the signal", cause, cause.startswith("rank 2 failed: killed by signal 9")
    )
    seconds = record["seconds"]
    results.bench.check("the run ends after that", "within seconds", f"{seconds:.1f} s in all", seconds < 60)


def memory(results: Results) -> None:
    record = results.submit("--gpus", "1", "fails.py", "memory")
    cause = str(record.get("cause"))
    right = cause.startswith("rank 2 failed: torch.") and "out of memory" in cause
    results.bench.check("rank 2 runs out of GPU memory", "rank 2 and the error", cause, right)
    record = results.submit(
        "--gpus", "1", "--retries", "1", "--retry-on", "oom", "--retry-delay", "0.1s", "fails.py", "memory"
    )
    right = record["status"] == "Completed" and "attempt 2 starts at step 5" in record["log"]
    seen = last_lines(record, RANKS + 1)
    results.bench.check("--retry-on oom after that", "attempt 2 starts at step 5", seen, right)


def sample(results: Results) -> None:
    """The sample mnist-ddp: with one process on the GPU, then with four on CPUs."""
    bench = results.bench
    bench.project = bench.place
    done = bench.mlw("project", "create", "--name", "mnist-ddp", "--template", "mnist-ddp")
    assert done.returncode == 0, done.stderr
    bench.project = bench.place / "mnist-ddp"
    use_this_python(bench.project)
    site = bench.env["PYTHONPATH"].rpartition(":")[2]  # contains matplotlib
    # A GPU trains an epoch of the 2,000 images in 50 ms. Four processes on one GPU use CPUs.
    for count, gpu, epochs in ((1, ("yes", "partly"), "200"), (RANKS, ("no",), "4")):
        words = ["--env", f"PYTHONPATH={site}", "train.py", "--epochs", epochs]
        record = results.submit(*words, target="local-gpu", count=count)
        used = (record.get("gpu") or {}).get("used")
        accuracy = record.get("test_accuracy")
        right = record["status"] == "Completed" and isinstance(accuracy, float) and accuracy > 0.85 and used in gpu
        right = right and f"equal weights in all processes ({count})" in record["log"]
        seen = f"accuracy {accuracy}, {gpu_line(record)}"
        bench.check(
            f"mnist-ddp, processes: {count}",
            f"accuracy > 0.85, equal weights, GPU used: {' or '.join(gpu)}",
            seen,
            right,
        )


PARTS: dict[str, Callable[[Results], None]] = {
    "shared": shared,
    "idle": idle,
    "retried": retried,
    "uneven": uneven,
    "stalled": stalled,
    "killed": killed,
    "memory": memory,
    "sample": sample,
}


def write(results: Results, out: Path, seconds: float, place: str) -> None:
    bench = results.bench
    out.mkdir(parents=True, exist_ok=True)
    (out / "ranks.json").write_text(json.dumps({"rows": bench.rows, "data": bench.data}, indent=1, default=str))
    lines = ["# Several processes on one NVIDIA GPU", "", "`benchmarks/gpu/ranks.py`.", ""]
    lines += [f"- {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}; {machine()}; took {seconds:.0f} s", ""]
    lines += ["| what | wanted | seen | |", "| --- | --- | --- | --- |"]
    for row in bench.rows:
        cells = [row["what"], row["wanted"], row["seen"].replace("|", "/"), "" if row["well"] else "**not so**"]
        lines.append(f"| {' | '.join(cells)} |")
    text = "\n".join([*lines, "", *results.lines])
    (out / "ranks.md").write_text(text.replace(place, "…").rstrip() + "\n")


def machine() -> str:
    import torch  # noqa: PLC0415 - only for the report

    name = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    return f"{name}, PyTorch {torch.__version__}, Python {sys.version.split()[0]}, {os.cpu_count()} processors"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--wheels")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--turns", type=int, default=30, help="blocks per mode when logging is measured")
    parser.add_argument("--limit", type=int, default=350, help="seconds after which it ends, with what it has")
    options = parser.parse_args()
    place = tempfile.mkdtemp(prefix="mlw-ranks-")
    results, begun = Results(Bench(Path(place), options.wheels), options.turns), time.time()

    def give_up() -> None:
        results.bench.check("all parts", f"within {options.limit} s", "stopped", False)
        write(results, options.out, time.time() - begun, place)
        os._exit(1)

    alarm = threading.Timer(options.limit, give_up)
    alarm.daemon = True
    alarm.start()
    results.prepare()
    for name in options.only.split(","):
        print(f"== {name} ({time.time() - begun:.0f} s)", flush=True)
        try:
            PARTS[name](results)
        except Exception as error:  # noqa: BLE001 - the other checks still run
            results.bench.check(name, "no exception", f"{type(error).__name__}: {error}", False)
            print(traceback.format_exc()[-1500:], flush=True)
        write(results, options.out, time.time() - begun, place)
    shutil.rmtree(place, ignore_errors=True)
    return int(not all(row["well"] for row in results.bench.rows))


if __name__ == "__main__":
    sys.exit(main())
