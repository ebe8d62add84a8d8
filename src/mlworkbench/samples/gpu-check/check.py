"""Shows which GPU this run has, and uses it for a few seconds. Needs no framework and no packages.

    mlw submit -c local check.py --seconds 4

On a GPU, each thread repeats a multiplication and an addition, and the script verifies the result. Without a GPU, it
prints what is missing and runs the same computation on the CPU. It logs the speed, and writes a report and a plot
to outputs/.
"""

import argparse
import glob
import json
import os
import platform
import sys
import time

import cuda
import nvml

try:
    from mlworkbench import log, log_params
except ImportError:  # started without mlw: python check.py

    def log(name, value, step=None):
        """Outside a run, nothing is recorded."""

    def log_params(values):
        """Outside a run, nothing is recorded."""


SPOKEN = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
CPU_SECONDS = 1.0


def look_around():
    """Returns the facts that can be read without using a GPU."""
    driver, cards = nvml.ask()
    return {
        "machine": platform.node(),
        "container": any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))),
        "driver": driver,
        "GPUs on this machine": cards,
        "device files": sorted(glob.glob("/dev/nvidia[0-9]*")),
        **{name: os.environ[name] for name in SPOKEN if name in os.environ},
    }


def find_gpus():
    """Returns (GPUs that this run can use, newest CUDA version that the driver supports, what is missing)."""
    try:
        driver = cuda.Driver()
        gpus = driver.gpus()
    except cuda.NoGpu as error:
        return [], None, str(error)
    return gpus, driver.version(), None if gpus else "the driver is installed, but no GPU is visible to this run"


def remedy(around):
    """Returns a hint with the most likely reason for a missing GPU."""
    if around.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "NoDevFiles"):
        return "CUDA_VISIBLE_DEVICES hides all GPUs from the run; request one with --gpus 1"
    if around["device files"] or around["GPUs on this machine"]:
        return "the machine has a GPU that the run cannot use; run `mlw doctor gpu`"
    if around["container"]:
        return "the container has no GPU; set nvidiaDocker: true in the .compute file (see docker-gpu)"
    return "this machine has no GPU; to attach another machine, see `mlw computetarget attach remotedocker --help`"


def work_on_cpu(seconds):
    """Runs the same computation in a Python loop, which is slow: not a benchmark."""
    began, count, points = time.monotonic(), 2_000_000, 0
    while points < 2 or time.monotonic() - began < seconds:  # a curve needs two points, however slow the machine is
        x, start = 0.0, time.perf_counter()
        for _ in range(count):
            x = x * 0.5 + 1.0
        yield time.monotonic() - began, 2 * count / (time.perf_counter() - start)
        points += 1


def measure(points, what):
    """Logs each data point; returns all points as (seconds, billions of operations per second)."""
    found = []
    for step, (seconds, speed) in enumerate(points, 1):
        found.append((seconds, speed / 1e9))
        log(what, speed / 1e9, step=step)
    return found


def plot(curves, path):
    """Plots the speed over time, one line per device, as an SVG image."""
    width, height, margin = 480, 240, 30
    last = max(seconds for points in curves.values() for seconds, _ in points)
    top = max(speed for points in curves.values() for _, speed in points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        '<g font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<path d="M{margin} {margin}V{height - margin}H{width - margin}" fill="none" stroke="gray"/>',
        f'<text x="{width - margin}" y="{height - 10}" text-anchor="end">{last:.1f} s</text>',
    ]
    for number, (name, points) in enumerate(curves.items()):
        color = ("seagreen", "steelblue", "darkorange", "purple")[number % 4]
        line = " ".join(
            "{:.1f},{:.1f}".format(
                margin + (width - 2 * margin) * seconds / last, height - margin - (height - 2 * margin) * speed / top
            )
            for seconds, speed in points
        )
        name = name.replace("&", "&amp;").replace("<", "&lt;")
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(
            f'<text x="{margin + 6}" y="{20 + 15 * number}" fill="{color}">{name}: '
            f"{points[-1][1]:,.3g} billion operations per second</text>"
        )
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*parts, "</g>", "</svg>", ""]))


def check_gpus(gpus, seconds):
    """Measures the GPUs one after the other; returns a curve for each GPU."""
    curves = {}
    for gpu in gpus:
        size = f"{gpu.memory / 2**30:.1f} GiB"
        print(f"GPU {gpu.number}: {gpu.name}, {size}, compute capability {gpu.capability}, {gpu.uuid()}", flush=True)
        name = "gflops" if len(gpus) == 1 else f"gflops_gpu{gpu.number}"
        points = curves[f"GPU {gpu.number} {gpu.name}"] = measure(gpu.work(seconds), name)
        print(f"GPU {gpu.number}: {points[-1][1]:,.0f} billion operations per second; result verified", flush=True)
    return curves


def main():
    parser = argparse.ArgumentParser(description="Show which GPU a run has, and use it for a few seconds.")
    parser.add_argument("--seconds", type=float, default=4.0, help="duration for each GPU (%(default)s)")
    parser.add_argument("--require", action="store_true", help="fail with exit code 1 if there is no GPU")
    options = parser.parse_args()
    if not 0 < options.seconds <= 3600:
        parser.error("--seconds must be between 0 and 3600")

    around = look_around()
    for name, value in around.items():
        print(f"{name}: {(', '.join(value) if isinstance(value, list) else value) or 'none'}", flush=True)
    try:
        gpus, version, missing = find_gpus()
        names = [gpu.name for gpu in gpus]
        log("gpu_count", len(gpus))
        log_params({"device": ", ".join(names) or "CPU", "cuda": version or "none"})
        if gpus:
            print(f"this run has {len(gpus)} GPU{'s' * (len(gpus) > 1)}; the driver supports CUDA up to {version}")
            curves = check_gpus(gpus, options.seconds)
        else:
            print(f"this run has no GPU: {missing}\nhint: {remedy(around)}", flush=True)
            points = measure(work_on_cpu(min(options.seconds, CPU_SECONDS)), "gflops")
            curves = {"CPU, Python loop": points}
            print(f"CPU: {points[-1][1]:.3f} billion operations per second in a Python loop")
    except cuda.CudaError as error:
        print(f"the GPU cannot be used: {error}", file=sys.stderr)
        return 1

    os.makedirs("outputs", exist_ok=True)
    with open("outputs/gpu.json", "w", encoding="utf-8") as file:
        json.dump({**around, "GPUs of this run": names, "cuda": version, "missing": missing}, file, indent=2)
    plot(curves, "outputs/speed.svg")
    print("wrote outputs/gpu.json and outputs/speed.svg")
    if options.require and not gpus:
        print(f"--require: this run has no GPU: {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
