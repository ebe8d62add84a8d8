"""Cost of logging every step of a real training on a real GPU. Usage:

    python3 benchmarks/gpu/training.py --out FOLDER

Python must have PyTorch with CUDA; the in-run library is taken from this checkout. Steps with and without a log call
alternate in blocks, so that both run under the same conditions. Writes FOLDER/training.md and training.json.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).resolve().parents[2] / "src/mlworkbench/remote/inrun"
AIM = 0.001
BLOCKS = 40  # blocks with, and as many without, log calls
SECONDS = 1.0  # duration of a block


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "metrics"))
        os.environ.update(MLW_RUN_ID="bench", MLW_RUN_FOLDER=folder)
        sys.path.insert(0, str(LIBRARY))
        torch = importlib.import_module("torch")

        results = [measured(name, size, torch) for name, size in (("small", 512), ("usual", 2048))]
        written = sum(len(path.read_bytes()) for path in Path(folder, "metrics").iterdir())
    facts = {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "written": written,
        "trainings": results,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "training.json").write_text(json.dumps(facts, indent=1))
    (out / "training.md").write_text(table(facts))
    print(table(facts))
    return 0 if written else 1


def trainer(size: int, torch: Any) -> Callable[[], float]:
    """Return a function that runs a transformer step (forward, backward, AdamW) and returns the loss."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(size, 16, 4 * size, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6).cuda().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    batch = torch.randn(16, 256, size, device="cuda", dtype=torch.bfloat16)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = (model(batch) - batch).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def measured(name: str, size: int, torch: Any) -> dict[str, Any]:
    library = importlib.import_module("mlworkbench")  # the in-run library
    log, flush = library.log, library.flush

    step = trainer(size, torch)
    for _ in range(30):
        step()
    begun = time.perf_counter()
    for _ in range(20):
        step()
    many = max(5, int(SECONDS / ((time.perf_counter() - begun) / 20)))
    times: dict[bool, list[float]] = {False: [], True: []}
    calls: list[int] = []
    log("begin", 0.0)
    flush()
    before = writers_time()
    number = 0
    for block in range(2 * BLOCKS):
        logs = block % 2 == (block // 2) % 2  # alternate the order in each pair of blocks
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(many):
            loss = step()
            number += 1
            if logs:
                at = time.perf_counter_ns()
                log("loss", loss, step=number)
                calls.append(time.perf_counter_ns() - at)
        torch.cuda.synchronize()
        times[logs].append((time.perf_counter() - begun) / many)
        flush()
    ratios = [with_log / without for with_log, without in zip(times[True], times[False], strict=True)]
    centre = statistics.median(ratios)
    error = 1.253 * statistics.stdev(ratios) / len(ratios) ** 0.5  # standard error of the median
    bare, call = statistics.median(times[False]), statistics.mean(calls)
    writing = (writers_time() - before) / len(calls)
    return {
        "name": name,
        "step_ms": bare * 1e3,
        "slowdown": centre - 1,
        "error": error,
        "call_us": call / 1e3,
        "writing_us": writing / 1e3,
        "share": (call + writing) / 1e9 / bare,
        "steps": number,
    }


def writers_time() -> int:
    """Return the CPU nanoseconds that the library's thread has used."""
    threads = [one for one in threading.enumerate() if one.name.startswith("mlworkbench")]
    (thread,) = threads
    return int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0])


def table(facts: dict[str, Any]) -> str:
    head = ("training", "a step", "median of pairs ± error", "a call", "its writing", "slow-down at most", "aim")
    machine = f"{facts['gpu']}, PyTorch {facts['torch']}, Python {facts['python']}"
    rows = [head, ("---",) * len(head), *map(row, facts["trainings"])]
    return "\n".join(
        (
            "# Logging every step of a training on a GPU",
            "",
            f"{machine}; `benchmarks/gpu/training.py`.",
            f"A transformer of 6 layers, its loss read after every step; {BLOCKS} blocks of about {SECONDS:g} s",
            "with a `mlworkbench.log` in every step beside as many without, alternating. At most:",
            "the calls, and all that their writing costs another thread, as if nothing of it went on beside the GPU.",
            "",
            *("| " + " | ".join(cells) + " |" for cells in rows),
            "",
        )
    )


def row(result: dict[str, Any]) -> tuple[str, ...]:
    return (
        result["name"],
        f"{result['step_ms']:.2f} ms",
        f"{result['slowdown'] * 100:+.3f} % ± {result['error'] * 100:.3f}",
        f"{result['call_us']:.1f} µs",
        f"{result['writing_us']:.1f} µs",
        f"{result['share'] * 100:.3f} %",
        f"under {AIM * 100:g} %: {'met' if result['share'] < AIM else 'missed'}",
    )


if __name__ == "__main__":
    raise SystemExit(main())
