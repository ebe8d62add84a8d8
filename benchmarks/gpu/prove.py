"""Check all GPU features on a machine with a real NVIDIA GPU and PyTorch. Usage:

    python3 benchmarks/gpu/prove.py --out FOLDER [--wheels FOLDER] [--only yes,no,…]

Python must have PyTorch with CUDA. If mlworkbench and its dependencies are not installed, --wheels names a folder with
wheels (nothing is downloaded); the package itself is taken from this checkout. Writes FOLDER/prove.json and prove.md,
and exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomllib

REPOSITORY = Path(__file__).resolve().parents[2]
GIB = 1 << 30

# -- scripts -----------------------------------------------------------------------------------------------------

TRAIN = """
import sys, time, torch
torch.manual_seed(0)
x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
w = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=1e-9)
begun, steps = time.time(), 0
while time.time() - begun < float(sys.argv[1]):
    for _ in range(10):
        loss = ((x @ w).float() ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    steps += 10
print("steps", steps, "peak", torch.cuda.max_memory_reserved())
"""
PROCESSOR = """
import sys, time, torch
x = torch.randn(512, 512)
begun = time.time()
while time.time() - begun < float(sys.argv[1]):
    x = torch.tanh(x @ x)
print("done on", x.device)
"""
CONTEXT = """
import sys, time, torch
x = torch.zeros(1, device="cuda")
y = torch.randn(256, 256)
begun = time.time()
while time.time() - begun < float(sys.argv[1]):
    y = torch.tanh(y @ y)  # the tensors that are computed with never moved
    time.sleep(0.01)
"""
INPUT_BOUND = """
import random, sys, time, torch
torch.set_num_threads(1)
w = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
begun = time.time()
while time.time() - begun < float(sys.argv[1]):
    batch = [random.random() for _ in range(400_000)]  # the reading of the data, in plain Python
    x = torch.tensor(batch[:4096]).to("cuda", torch.bfloat16).expand(4096, 4096)
    for _ in range(60):
        x = torch.tanh(x @ w)
    torch.cuda.synchronize()
"""
OUT_OF_MEMORY = """
import time, torch
kept = []
time.sleep(2)
while True:
    kept.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda").fill_(1))
    torch.cuda.synchronize()
    time.sleep(0.1)
"""
FAILS_EARLY = """
import sys
sys.exit("data/train.csv is missing")
"""
FOREIGN = """
import sys, torch
x = torch.empty(20 << 30, dtype=torch.uint8, device="cuda").fill_(1)
torch.cuda.synchronize()
print("up", flush=True)
sys.stdin.read()
"""
# A loop whose batches are timed on demand: large kernels, or many small ones, which are sensitive to driver delays.
KERNELS = """
import sys, time, torch
x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
s = torch.randn(64, 64, device="cuda")
def large(times=10_000):
    for _ in range(times):
        x @ x
def small(times=300_000):
    for _ in range(times):
        s.add_(1)
for _ in range(3):
    large(); small(); torch.cuda.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    turn = large if line.strip() == "large" else small
    turn(2_000)  # the clocks of an idle GPU are low
    torch.cuda.synchronize()
    begun = time.perf_counter()
    turn()
    torch.cuda.synchronize()
    print(time.perf_counter() - begun, flush=True)
"""
# Runs only the sampler of the supervisor and prints the memory and CPU time of the process at the end.
SAMPLER = """
import json, select, sys, time
sys.path.insert(0, sys.argv[1])
from remote.gpus.gpu_sampler import Sampler
from remote.gpus.process_owner import Owner
begun = time.process_time()
sampler = Sampler(None, Owner("x", "/x", [int(sys.argv[2])]), sys.argv[3])
sampler.sample(time.monotonic())
loaded, first = time.process_time(), time.monotonic()
print("ready", flush=True)
looks, on = 0, True
while True:
    if select.select([sys.stdin], [], [], sampler.seconds_until_due(time.monotonic()) if on else None)[0]:
        word = sys.stdin.readline().strip()
        if word not in ("on", "off"):
            break
        on = word == "on"
        print(word, flush=True)
    elif on:
        looks += sampler.sample(time.monotonic())
used, passed = time.process_time() - loaded, time.monotonic() - first
summary = sampler.finish()
size = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")][0]
print(json.dumps({"looks": looks, "cpu": used, "seconds": passed, "start": loaded - begun, "rss": size, "of": summary}))
"""


class Bench:
    """A user of this machine with an empty home, and the results of the checks."""

    def __init__(self, place: Path, wheels: str | None) -> None:
        self.place = place
        keep = ("MLW_NVML_LIBRARY", "MLW_FAKE_GPUS")  # to try this file without a GPU
        odd = [name for name in os.environ if name.startswith(("MLW_", "CUDA_")) and name not in keep]
        self.env = {name: value for name, value in os.environ.items() if name not in odd}
        for name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
            self.env.pop(name, None)
        self.env.update(HOME=str(place), MLW_HOME=str(place / "store"))
        self.scripts_env = dict(self.env)
        site = place / "site"
        if wheels:
            files = [str(path) for path in Path(wheels).glob("*.whl")]
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(site)]
            subprocess.run([*command, *files], check=True)
        register(site)
        # PYTHONPATH is only for mlw: scripts run without it.
        self.env["PYTHONPATH"] = f"{REPOSITORY / 'src'}:{site}"
        self.project = place / "proof"
        self.rows: list[dict[str, Any]] = []
        self.data: dict[str, Any] = {}
        self.minute = 70.0

    def mlw(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self._command(arguments), timeout=300, **self._settings(env))

    def start(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        settings = self._settings(env)
        settings.pop("capture_output")
        return subprocess.Popen(self._command(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings)

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-c", "from mlworkbench.cli.main import main; main()", *arguments]

    def _settings(self, env: dict[str, str] | None) -> dict[str, Any]:
        folder = self.project if self.project.exists() else self.place
        return {"cwd": folder, "env": {**self.env, **(env or {})}, "capture_output": True, "text": True}

    def prepare(self) -> None:
        done = self.mlw("project", "create", "--name", "proof")
        assert done.returncode == 0, done.stderr
        compute = self.project / "aml_config" / "local.compute"
        compute.write_text(f"{compute.read_text()}\npythonLocation: {sys.executable}\n")
        scripts = {
            "train": TRAIN,
            "processor": PROCESSOR,
            "context": CONTEXT,
            "input": INPUT_BOUND,
            "oom": OUT_OF_MEMORY,
            "early": FAILS_EARLY,
        }
        for name, text in scripts.items():
            (self.project / f"{name}.py").write_text(text)

    def submit(self, *arguments: str, env: dict[str, str] | None = None) -> dict[str, Any]:
        """Submit a run, wait for its end, and return its record with the output."""
        begun = time.time()
        done = self.mlw("submit", "-c", "local", *arguments, env=env)
        return self.record(done.stdout, done.stderr, time.time() - begun)

    def record(self, out: str, err: str, seconds: float) -> dict[str, Any]:
        match = re.search(r"RunId: +(\S+)", err)
        assert match, f"no run: {out}\n{err}"
        info = json.loads(self.mlw("history", "info", match[1], "-o", "json").stdout)
        info.pop("packages", None)  # the same long list for all runs
        return {"run": match[1], "said": err, "log": out[-2000:], "seconds": seconds, **info}

    def check(self, what: str, wanted: str, seen: object, well: bool) -> None:
        self.rows.append({"what": what, "wanted": wanted, "seen": str(seen), "well": well})
        print(f"[{'ok' if well else 'NOT'}] {what}: {seen}", flush=True)

    def folder(self, run: str) -> Path:
        return self.place / "store" / "runs" / run


def register(site: Path) -> None:
    """Write the metadata and entry points that an installation of the package would create."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    place = site / "mlworkbench-0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: mlworkbench\nVersion: 0\n")
    lines = []
    for group, entries in settings["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (place / "entry_points.txt").write_text("\n".join(lines) + "\n")


# -- verdicts ----------------------------------------------------------------------------------------------------


def verdict(record: dict[str, Any]) -> dict[str, Any]:
    return record.get("gpu") or {}


def said(record: dict[str, Any]) -> str:
    """Return the lines about the GPU in the output of a run."""
    return " / ".join(
        line.strip() for line in record["said"].splitlines() if line.startswith(("GPU used", "GPU cause", "Remedy"))
    )


def yes(bench: Bench) -> None:
    """Run a training loop, and compare its telemetry with nvidia-smi's figures for the same period."""
    with smi_beside() as rows:
        process = bench.start("submit", "-c", "local", "--gpus", "1", "train.py", "30")
        begun = time.time()
        helpers = watch_helpers(bench, process)
        out, err = process.communicate(timeout=200)
        record = bench.record(out, err, time.time() - begun)
    bench.data["yes"] = record
    bench.check("training loop", "GPU used: yes", said(record), verdict(record).get("used") == "yes")
    bench.check(
        "the start names the GPU",
        "name, capability, clock, bus id, memory",
        first_line(record),
        "GPU 0: " in record["said"],
    )
    compare(bench, record, rows)
    bench.data["processes beside the run"] = helpers
    rss = max((one["rss"] for one in helpers), default=0)
    bench.check("largest process of ours beside the run", "≤ 45 MB", f"{rss / 1000:.1f} MB", 0 < rss <= 45_000)
    cpu = sum(one["cpu"] for one in helpers)
    bench.check("processor time of all of ours for 30 s of run", "told", f"{cpu:.2f} s", True)


def first_line(record: dict[str, Any]) -> str:
    return next((line for line in record["said"].splitlines() if line.startswith("GPU 0")), "nothing")


def watch_helpers(bench: Bench, process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Watch supervisor, launcher, and observer during the run; return the last memory and CPU time of each."""
    found: dict[int, dict[str, Any]] = {}
    ticks = os.sysconf("SC_CLK_TCK")
    until = time.time() + 32
    while process.poll() is None and time.time() < until:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes()
                if b"remote/__main__.py" not in words or os.fsencode(bench.place) not in words:
                    continue
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                status = (entry / "status").read_text()
                maps = "libnvidia-ml" in (entry / "maps").read_text()
            except OSError:
                continue
            rss = int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]
            cpu = (int(fields[11]) + int(fields[12])) / ticks
            known = found.setdefault(int(entry.name), {"pid": int(entry.name), "rss": 0})
            known.update(rss=max(rss, known["rss"]), cpu=cpu, nvml=maps)
        time.sleep(1)
    return list(found.values())


@contextmanager
def smi_beside() -> Iterator[list[list[str]]]:
    """Run nvidia-smi in a loop; rows: time, utilization, device memory, power, temperature."""
    rows: list[list[str]] = []
    query = "--query-gpu=utilization.gpu,memory.used,power.draw.average,temperature.gpu"
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits", "-lms", "1000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def read() -> None:
        assert process.stdout
        for line in process.stdout:
            rows.append([str(time.time()), *line.strip().split(", ")])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield rows
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        reader.join(10)


def compare(bench: Bench, record: dict[str, Any], rows: list[list[str]]) -> None:
    """Compare the samples with those of nvidia-smi, for the period in which the GPU is busy."""
    lines = [json.loads(line) for line in (bench.folder(record["run"]) / "gpu.jsonl").read_text().splitlines()]
    started = json.loads((bench.folder(record["run"]) / "started.json").read_text())["time"]
    ours = [(started + line["t"], line["gpus"][0]) for line in lines if "lost" not in line["gpus"][0]]
    work = [when for when, one in ours if one["utilisation"] and one["utilisation"] > 50]
    if not work or not rows:
        bench.check("telemetry beside nvidia-smi", "both have figures", f"{len(ours)} and {len(rows)} rows", False)
        return
    begin, end = work[0] + 3, work[-1] - 2
    mine = [one for when, one in ours if begin <= when <= end]
    theirs = [[float(cell) for cell in row[1:]] for row in rows if begin <= float(row[0]) <= end]
    bench.data["telemetry"] = {"ours": mine, "nvidia-smi": theirs}
    names = (
        ("utilisation", 0, 3.0, "%"),
        ("memory", 1, 16.0, "MiB"),
        ("power", 2, 15.0, "W"),
        ("temperature", 3, 2.0, "°C"),
    )
    for name, column, near, unit in names:
        scale = 1 / (1 << 20) if name == "memory" else 1.0
        own = statistics.fmean(one[name] * scale for one in mine)
        other = statistics.fmean(row[column] for row in theirs)
        seen = f"{own:.1f} {unit} beside {other:.1f} {unit} ({len(mine)} and {len(theirs)} samples)"
        bench.check(f"mean {name} beside nvidia-smi's", f"within {near:g} {unit}", seen, abs(own - other) <= near)
    gpu = verdict(record)["gpus"][0]
    power = gpu["mean_power"] * gpu["seconds"] / 3600
    meter = f"{gpu['energy_wh']:.3f} Wh by the card's meter, {power:.3f} Wh by its power × time"
    bench.check("energy", "within 15 %", meter, abs(gpu["energy_wh"] - power) <= 0.15 * power)
    peak = re.search(r"peak (\d+)", record["log"])
    if peak and gpu["peak_memory"]:
        seen = (
            f"{gpu['peak_memory'] / GIB:.2f} GiB seen, {int(peak[1]) / GIB:.2f} GiB reserved by PyTorch and its context"
        )
        bench.check(
            "peak memory of the run's process",
            "PyTorch's and a context",
            seen,
            int(peak[1]) <= gpu["peak_memory"] < int(peak[1]) + 2 * GIB,
        )


def no(bench: Bench) -> None:
    record = bench.submit("--gpus", "1", "processor.py", "10")
    bench.data["no"] = record
    bench.check("CPU script on a GPU target", "GPU used: no", said(record), verdict(record).get("used") == "no")
    hidden = bench.submit("processor.py", "5")
    bench.data["no request"] = hidden
    bench.check(
        "the same without a request", "measured all the same: no", said(hidden), verdict(hidden).get("used") == "no"
    )


def context_only(bench: Bench) -> None:
    record = bench.submit("--gpus", "1", "context.py", "15", env={"MLW_GPU_PATIENCE": "5"})
    bench.data["context"] = record
    result = verdict(record)
    cause = (result.get("diagnosis") or {}).get("cause", "")
    bench.check(
        "a context and no kernels",
        "GPU used: no, and why",
        said(record),
        result.get("used") == "no" and bool(cause),
    )


def input_bound(bench: Bench) -> None:
    record = bench.submit("--gpus", "1", "input.py", "30")
    bench.data["input-bound"] = record
    cause = (verdict(record).get("diagnosis") or {}).get("cause", "")
    bench.check(
        "input-bound",
        "partly or yes, waits for its input",
        said(record),
        "waits for input" in cause,
    )


def out_of_memory(bench: Bench) -> None:
    record = bench.submit("--gpus", "1", "oom.py")
    bench.data["out of memory"] = record
    result = verdict(record)
    cause = (result.get("diagnosis") or {}).get("cause", "")
    bench.check(
        "out of GPU memory",
        "failed, told with the peak",
        said(record),
        record["status"] == "Failed" and "memory" in cause,
    )


def failed_early(bench: Bench) -> None:
    """Run a script that fails before it uses the GPU, with CUDA_VISIBLE_DEVICES set by the user."""
    record = bench.submit("--gpus", "1", "early.py", env={"CUDA_VISIBLE_DEVICES": "7"})
    bench.data["failed early"] = record
    diagnosis = verdict(record).get("diagnosis") or {}
    bench.check(
        "a script that fails before it uses the GPU",
        "the cause is the failure; no remedy",
        said(record),
        "failed before it used the GPU" in diagnosis.get("cause", "") and not diagnosis.get("remedy"),
    )
    notes = [line for line in record["said"].splitlines() if "CUDA_VISIBLE_DEVICES" in line]
    bench.check("CUDA_VISIBLE_DEVICES of the user is replaced", "one line", " / ".join(notes), len(notes) == 1)


def warning(bench: Bench) -> None:
    record = bench.submit("--gpus", "1", "processor.py", "15", env={"MLW_GPU_PATIENCE": "5"})
    lines = [line for line in record["said"].splitlines() if "has not opened" in line]
    bench.check(
        "a live warning while a run leaves its GPU alone",
        "one line",
        " / ".join(lines) or record["said"][-300:],
        bool(lines),
    )


def standing(bench: Bench, run: str) -> str:
    """Return the line of `mlw ps` about a run."""
    lines = bench.mlw("ps").stdout.splitlines()
    return next((" ".join(line.split()) for line in lines if line.startswith(run)), "it is not among what runs")


def queued(bench: Bench) -> None:
    """Two runs request one GPU: the second waits, and starts by itself without a connected client."""
    runs = [bench.mlw("submit", "--detach", "-c", "local", "--gpus", "1", "train.py", "8") for _ in range(2)]
    names = [re.search(r"RunId: +(\S+)", one.stderr)[1] for one in runs]  # type: ignore[index]
    time.sleep(3)
    words = standing(bench, names[1])
    bench.check("two runs, one GPU", "the second is queued", words, f"Queued (GPU 0 held by run {names[0]})" in words)
    until = time.time() + 120
    while time.time() < until and not all((bench.folder(name) / "exit.json").exists() for name in names):
        time.sleep(0.5)
    time.sleep(2)
    first, second = (json.loads((bench.folder(name) / "exit.json").read_text()) for name in names)
    begun = json.loads((bench.folder(names[1]) / "started.json").read_text())["time"]
    gap = begun - first["ended"]
    bench.check("the second starts when the first has ended", "0 to 10 s later", f"{gap:.2f} s", 0 <= gap < 10)
    records = [json.loads(bench.mlw("history", "info", name, "-o", "json").stdout) for name in names]
    bench.data["queued"] = records
    used = [verdict(one).get("used") for one in records]
    bench.check("both used it", "yes, yes", ", ".join(map(str, used)), used == ["yes", "yes"] and second["code"] == 0)


def foreign(bench: Bench) -> None:
    """Another process computes on the GPU: a run that requests it waits, and `mlw gpus` shows the process."""
    command = [sys.executable, "-c", FOREIGN]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=bench.scripts_env)
    assert process.stdin and process.stdout
    process.stdout.readline()
    shown = bench.mlw("gpus")
    bench.check(
        "mlw gpus names a stranger's process",
        "user, pid, memory",
        " ".join(shown.stdout.split())[-260:],
        str(process.pid) in shown.stdout,
    )
    bench.data["mlw gpus"] = json.loads(bench.mlw("gpus", "-o", "json").stdout)
    done = bench.mlw("submit", "--detach", "-c", "local", "--gpus", "1", "train.py", "3")
    name = re.search(r"RunId: +(\S+)", done.stderr)[1]  # type: ignore[index]
    time.sleep(4)
    waiting = not (bench.folder(name) / "started.json").exists()
    words = standing(bench, name)
    process.stdin.close()
    process.wait(20)
    until = time.time() + 60
    while time.time() < until and not (bench.folder(name) / "exit.json").exists():
        time.sleep(0.2)
    ended = (bench.folder(name) / "exit.json").exists()
    bench.check(
        "a run waits for a GPU that a stranger uses, then starts",
        "queued, then ended",
        words,
        waiting and ended and "Queued" in words,
    )


def doctor(bench: Bench) -> None:
    done = bench.mlw("doctor", "gpu", "-o", "json")
    rows = json.loads(done.stdout)
    bench.data["doctor"] = rows
    text = "; ".join(f"{row['what']}: {row['found']}" for row in rows)
    bench.check("mlw doctor gpu", "each link is well", text, done.returncode == 0)
    shown = bench.mlw("computetarget", "show", "local")
    line = next((line for line in shown.stdout.splitlines() if line.startswith("GPU 0")), "")
    bench.check("computetarget show", "the GPU", " ".join(line.split()), "GPU-" in line)


# -- cost --------------------------------------------------------------------------------------------------------


class InteractiveProcess:
    """A process that prints "ready" and then responds to each input line with a line."""

    def __init__(self, *command: str, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line.strip() == "ready", line

    def ask(self, text: str) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def travelling(bench: Bench) -> str:
    """Return the installed bundle, which contains `remote` as on a target."""
    return str(next((bench.place / "store" / "lib").iterdir()))


def sampler(bench: Bench, pid: int) -> InteractiveProcess:
    python = getattr(sys, "_base_executable", None) or sys.executable
    command = (python, "-I", "-S", "-c", SAMPLER, travelling(bench), str(pid), str(bench.place / "gpu.jsonl"))
    return InteractiveProcess(*command, env=bench.env)


def cost(bench: Bench) -> None:
    """Run the sampler beside a loaded GPU for a minute, and check its CPU time and memory."""
    loop = InteractiveProcess(sys.executable, "-c", KERNELS, env=bench.scripts_env)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            loop.ask("large")

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    try:
        watch = sampler(bench, loop.process.pid)
        time.sleep(bench.minute)
        usage = json.loads(watch.ask("end"))
    finally:
        stop.set()
        worker.join(30)
        loop.end()
    bench.data["sampler"] = usage
    share = usage["cpu"] / usage["seconds"]
    each = f"{usage['cpu'] / usage['looks'] * 1000:.2f} ms each of {usage['looks']} looks in {usage['seconds']:.0f} s"
    bench.check(
        "processor time of sampling", "≤ 0.1 % of a core per GPU", f"{share * 100:.3f} %; {each}", share <= 0.001
    )
    bench.check(
        "memory of the sampling process, NVML in it", "≤ 45 MB", f"{usage['rss'] / 1000:.1f} MB", usage["rss"] <= 45_000
    )
    bench.check("once, at its start", "told", f"{usage['start'] * 1000:.0f} ms of a processor", True)


def overhead(bench: Bench, pairs: int = 12) -> None:
    """Run the same kernel loop with and without sampling, alternating which comes first."""
    loop = InteractiveProcess(sys.executable, "-c", KERNELS, env=bench.scripts_env)
    watch = sampler(bench, loop.process.pid)
    loop.ask("large")
    for kind in ("large", "small"):
        times: dict[bool, list[float]] = {True: [], False: []}
        for number in range(pairs):
            for sampled in (number % 2 == 0, number % 2 == 1):
                watch.ask("on" if sampled else "off")
                times[sampled].append(float(loop.ask(kind)))
        ratios = [a / b for a, b in zip(times[True], times[False], strict=True)]
        noise = [times[False][i] / times[False][i + 1] for i in range(pairs - 1)]
        spread = statistics.stdev(noise)
        middle = statistics.median(ratios)
        bench.data[f"overhead {kind}"] = {"with": times[True], "without": times[False], "ratio": middle}
        both = f"{statistics.median(times[True]):.4f} s with, {statistics.median(times[False]):.4f} s without"
        seen = f"{(middle - 1) * 100:+.2f} % (median of {pairs} pairs; {both}; "
        seen += f"two turns without differ by ± {spread * 100:.2f} %)"
        well = middle - 1 <= max(0.005, 2 * spread / pairs**0.5)
        bench.check(f"slow-down of {kind} kernels by sampling", "none to be measured", seen, well)
    watch.end()
    loop.end()


# -- all checks --------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Bench], None]] = {
    "doctor": doctor,
    "yes": yes,
    "no": no,
    "context": context_only,
    "warning": warning,
    "input": input_bound,
    "oom": out_of_memory,
    "early": failed_early,
    "queued": queued,
    "foreign": foreign,
    "cost": cost,
    "overhead": overhead,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--wheels")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--limit", type=int, default=560, help="seconds after which it ends, with what it has")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="mlw-prove-"))
    bench = Bench(place, given.wheels)
    begun = time.time()

    def give_up() -> None:
        bench.check("the whole", f"within {given.limit} s", "it was stopped", False)
        write(bench, Path(given.out), time.time() - begun)
        os._exit(1)

    alarm = threading.Timer(given.limit, give_up)
    alarm.daemon = True
    alarm.start()
    try:
        bench.prepare()
        for name in given.only.split(","):
            print(f"== {name} ({time.time() - begun:.0f} s)", flush=True)
            try:
                PARTS[name](bench)
            except Exception as error:  # noqa: BLE001 - the other checks still run
                bench.check(name, "no exception", f"{type(error).__name__}: {error}", False)
                print(traceback.format_exc()[-1500:], flush=True)
            write(bench, Path(given.out), time.time() - begun)
    finally:
        write(bench, Path(given.out), time.time() - begun)
        shutil.rmtree(place, ignore_errors=True)
    return int(not all(row["well"] for row in bench.rows))


def write(bench: Bench, out: Path, seconds: float) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "prove.json").write_text(json.dumps({"rows": bench.rows, "data": bench.data}, indent=1, default=str))
    smi = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    lines = ["# GPUs, proved on a real one", "", "Made by `benchmarks/gpu/prove.py`; not edited by hand.", ""]
    machine = f"{smi}; {os.cpu_count()} processors, Linux {os.uname().release}"
    lines += [f"- {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}; {machine}"]
    lines += [
        f"- Python {sys.version.split()[0]}; took {seconds:.0f} s",
        "",
        "| what | wanted | seen | |",
        "| --- | --- | --- | --- |",
    ]
    for row in bench.rows:
        cells = [row["what"], row["wanted"], row["seen"].replace("|", "/"), "" if row["well"] else "**not so**"]
        lines.append(f"| {' | '.join(cells)} |")
    (out / "prove.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
