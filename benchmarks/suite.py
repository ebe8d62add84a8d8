"""Duration of the tests: `python benchmarks/suite.py [--busy 4] [--part e2e]` → results/suite.json and suite.md.

Run `make test`, or parts of it one after the other, as a user would, and add up the cost of each test.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from machine import environment

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
PARTS = ("test", "check", "quick", "e2e")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the duration of the tests.")
    parser.add_argument("--busy", type=int, default=0, help="Number of busy processes in the background")
    parser.add_argument("--part", action="append", choices=PARTS, help="make target (repeatable; default: test)")
    parser.add_argument("--note", default="", help="Note in the table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        costs = Path(folder) / "costs.tsv"
        parts = [_part(name, options.busy, costs) for name in options.part or PARTS[:1]]
        run = {
            "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
            "commit": _git("rev-parse", "--short", "HEAD"),
            "busy": options.busy,
            "note": options.note,
            "parts": parts,
            "folders": _folders(costs) if costs.exists() else {},
        }
    kept = RESULTS / "suite.json"
    runs = [*(json.loads(kept.read_text()) if kept.exists() else []), run]
    kept.write_text(json.dumps(runs, indent=1) + "\n")
    (RESULTS / "suite.md").write_text(_page(runs))
    return 0 if all(part["code"] == 0 for part in parts) else 1


def _part(name: str, busy: int, costs: Path) -> dict[str, Any]:
    argv = ["make", name]
    if busy:
        argv = ["sh", "scripts/beside-load", str(busy), *argv]
    options = f"--costs={costs}" if name != "check" else ""
    begin, last = time.monotonic(), ""
    with subprocess.Popen(
        argv, cwd=ROOT, env=environment(PYTEST_ADDOPTS=options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout
        for line in process.stdout:
            text = line.decode(errors="replace")
            sys.stdout.write(text)
            last = text.strip() if re.search(r"\d (passed|failed)", text) else last
    seconds = time.monotonic() - begin
    return {"name": name, "seconds": round(seconds), "code": process.returncode, "result": last.partition(" in ")[0]}


def _folders(costs: Path) -> dict[str, list[float]]:
    """Return for each folder the number of tests, their CPU seconds, and their wall-clock seconds."""
    folders: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for line in costs.read_text().splitlines():
        name, processor, clock = line.split("\t")
        row = folders["/".join(name.partition("::")[0].split("/")[:2])]
        for place, value in enumerate((1, float(processor), float(clock))):
            row[place] = round(row[place] + value, 1)
    return dict(sorted(folders.items()))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _page(runs: list[dict[str, Any]]) -> str:
    lines = ["# The test suite", "", "Made by `python benchmarks/suite.py` from suite.json.", ""]
    lines += ["Two cores; *busy* processes ran beside the tests.", ""]
    lines += ["| date | commit | busy | part | minutes | result | |", "| --- " * 7 + "|"]
    for run in runs:
        for part in run["parts"]:
            cells = (run["date"][:16], run["commit"], str(run["busy"]), part["name"], _minutes(part["seconds"]))
            lines.append(f"| {' | '.join(cells)} | {part['result']} | {run['note']} |")
        total = _minutes(sum(part["seconds"] for part in run["parts"]))
        lines.append(f"| {run['date'][:16]} | {run['commit']} | {run['busy']} | **all of these** | **{total}** | | |")
    lines += ["", "## Costs of each folder", "", "Processor seconds include all processes that the tests started.", ""]
    lines += [
        "| date | commit | busy | folder | tests | processor s | s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in runs:
        for folder, (count, processor, clock) in run["folders"].items():
            cells = (run["date"][:16], run["commit"], str(run["busy"]), folder)
            lines.append(f"| {' | '.join(cells)} | {count:,.0f} | {processor:,.0f} | {clock:,.0f} |")
    return "\n".join(lines) + "\n"


def _minutes(seconds: float) -> str:
    return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


if __name__ == "__main__":
    sys.exit(main())
