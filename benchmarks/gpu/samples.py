"""Run the samples' GPU run configurations on a machine with a real NVIDIA GPU and PyTorch. Usage:

    python3 benchmarks/gpu/samples.py --out FOLDER --wheels FOLDER [--data FOLDER]

Nothing is downloaded: the wheels are those of mlworkbench, matplotlib, and numpy. Scripts run with the current Python,
so only the PyTorch sample of the framework samples is tested. --data: a folder with the four MNIST files, for a run
with the full data set. Writes FOLDER/samples.md, and exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from prove import Bench  # benchmarks/gpu/prove.py

OWN = "userManagedEnvironment: true\npythonLocation: {python}\n"


def create(bench: Bench, name: str) -> None:
    """Create a project from a sample. Its local target uses the current Python, because nothing can be downloaded."""
    bench.project = bench.place
    done = bench.mlw("project", "create", "--name", name, "--template", name)
    assert done.returncode == 0, done.stderr
    bench.project = bench.place / name
    compute = bench.project / "aml_config" / "local.compute"
    text = compute.read_text().replace("\nuserManagedEnvironment: false\n", "\n")
    compute.write_text(f"{text}\n{OWN.format(python=sys.executable)}")


def run(bench: Bench, *arguments: str, env: dict[str, str] | None = None) -> tuple[dict[str, Any], list[str]]:
    done = bench.mlw("submit", "-c", "local-gpu", *arguments, env=env)
    record = bench.record(done.stdout, done.stderr, 0.0)
    typed = f"$ mlw submit -c local-gpu {' '.join(arguments)}"
    told = ("GPU", "Remedy", "Status", "Metrics", "Outputs")
    summary = [line for line in done.stderr.splitlines() if line.startswith(told)]
    return record, ["```text", typed, *done.stdout.splitlines(), *summary, "```", ""]


def used(record: dict[str, Any]) -> bool:
    return record["status"] == "Completed" and (record.get("gpu") or {}).get("used") == "yes"


def prove(bench: Bench, data: Path | None) -> tuple[list[str], bool]:
    create(bench, "gpu-check")
    record, lines = run(bench, "check.py", "--seconds", "6", "--require")
    lines = ["## gpu-check", "", *lines]
    sound = used(record)
    create(bench, "mnist-pytorch")
    variables = {"PYTHONPATH": bench.env["PYTHONPATH"].rpartition(":")[2]}  # contains matplotlib
    words = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    record, told = run(bench, *words, "train.py", "--epochs", "30")
    lines += ["## mnist-pytorch, the subset", "", *told]
    sound = sound and record["status"] == "Completed" and record["test_accuracy"] > 0.9
    if data is not None:
        words += ["--env", f"MNIST_MIRROR={data}", "train.py", "--data", "full", "--batch-size", "1024"]
        record, told = run(bench, *words, "--epochs", "30")
        lines += ["## mnist-pytorch, all of MNIST", "", *told]
        sound = sound and used(record) and record["test_accuracy"] > 0.98
    return lines, sound


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--wheels", required=True)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        lines, sound = prove(Bench(Path(place), options.wheels), options.data and options.data.resolve())
        lines = [line.replace(place, "…") for line in lines]
    lines.append("Everything was as it should be." if sound else "**Something was not as it should be.**")
    title = "# Samples on a machine with an NVIDIA GPU\n\n`benchmarks/gpu/samples.py`.\n\n"
    (options.out / "samples.md").write_text(title + "\n".join(lines) + "\n")
    print("\n".join(lines))
    return int(not sound)


if __name__ == "__main__":
    sys.exit(main())
